"""Django signals, each sent after the commit that made it true. Receivers cannot break anything.

Sent with ``sender=OutboxMessage``, ``message`` and ``using``; all but ``enqueued`` also with
``error`` (a text, empty when there was none). ``enqueued`` carries the saved OutboxMessage,
the others the Message that the handler saw.
"""

from django.dispatch import Signal

enqueued = Signal()
done = Signal()
retrying = Signal()
dead = Signal()
expired = Signal()
