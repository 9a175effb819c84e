"""New rows of the outbox, each stored the quickest way that its database has.

A row comes as its values: a dict of the columns that were worked out for it. It becomes an
``OutboxMessage`` when it is stored, because a model instance costs more than all the checks of a
message. ``INSERT``, ``COPY`` and ORM write the same row; ``tests/contract/test_storing.py`` compares.
"""

from .store import store

__all__ = ["store"]
