"""The outbox: a row of PostgreSQL and a message of a queue, committed together. See docs/outbox.md.

``tables`` is what programs call inside their own transaction of the database: ``send`` puts a message into a table, and
``first`` says whether a message is handled for the first time. ``forwarder`` is the process between the database and
the bus, which moves messages from the table to their queues, each once.
"""

from .forwarder import Forwarder
from .tables import SCHEMA, create, first, first_async, forget, send, send_async

__all__ = ["SCHEMA", "Forwarder", "create", "first", "first_async", "forget", "send", "send_async"]
