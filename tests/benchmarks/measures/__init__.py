"""Every measure of the benchmark: one module each, whose ``measure(scale)`` yields figures."""

NAMES = (
    "drain",
    "throughput",
    "atomic",
    "scaling",
    "enqueue",
    "wakeup",
    "latency",
    "late",
    "idle",
    "history",
    "waiting",
    "snapshot",
    "memory",
    "batches",
    "timers",
    "lateness",
    "leases",
)
