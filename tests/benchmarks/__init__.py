"""``python -m tests.benchmarks``: what it costs, beside what the plain thing costs."""
