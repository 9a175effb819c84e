"""``manage.py demo``: the promises, each put to the test with real workers and schedulers."""
