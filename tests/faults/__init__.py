"""Faults: what production does to workers and databases, done on purpose.

``oracle`` knows what was produced and judges what happened. ``proxy`` stands between a worker and
its database and cuts the line. ``servers`` are databases that a test may crash. ``chaos`` lists the
long scenarios of ``make chaos``; the tests here run short ones.
"""
