"""``manage.py demo``: the promises of the outbox, each put to the test with real worker processes."""
