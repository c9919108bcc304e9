"""Pluribus: out of many processes, one bus.

General layout, bottom to top: ``core`` (identities, frames, errors, ports), ``wire`` (the codec), ``engines`` (bytes
to peers), ``stack`` and ``layers`` (protocols without I/O), ``group`` (channels), ``runtime`` (asyncio) and ``sim``
(virtual time), and the doors: ``cli``, ``bench``. Start at ``connect`` in ``runtime/bus.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import events
from .core import errors
from .core.errors import PluribusError
from .core.frame import Message
from .core.ids import MemberId
from .core.view import View
from .group.asking import Answer, Answers
from .group.calls import exposed
from .runtime.bus import Bus, connect
from .runtime.group.group import Group
from .runtime.group.replica import Replica
from .runtime.loop.running import run
from .wire.bodies import Opaque, register

if TYPE_CHECKING:
    from .group.host.table import TableMachine
    from .pubsub.concepts import Vocabulary
    from .pubsub.event import Event
    from .pubsub.places import Near
    from .runtime.clients.log_client import LogClient
    from .runtime.group.cache import Cache
    from .runtime.group.notifications import Notifications
    from .runtime.keepers.durable_replica import DurableReplica
    from .runtime.styles.conversations.application import GroupManager
    from .runtime.styles.conversations.room import Room
    from .runtime.styles.objects.shadows import Shadow
    from .runtime.styles.queues.message import QueueMessage
    from .runtime.styles.queues.queue import MessageQueue
    from .runtime.styles.slots.hosts import SlotsHost
    from .runtime.styles.slots.slot import EnrolledSlot
    from .runtime.styles.spaces.space import Space
    from .runtime.styles.topics.follower import DurableSubscription, Mailbox
    from .runtime.styles.topics.patterns import Matches
    from .runtime.styles.topics.shared import SharedSubscription
    from .runtime.styles.topics.subscription import Subscription
    from .runtime.styles.transactions.transaction import Transaction
    from .transformations.registry import transformation

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Answers",
    "Bus",
    "Cache",
    "DurableReplica",
    "DurableSubscription",
    "EnrolledSlot",
    "Event",
    "Group",
    "GroupManager",
    "LogClient",
    "Mailbox",
    "Matches",
    "MemberId",
    "Message",
    "MessageQueue",
    "Near",
    "Notifications",
    "Opaque",
    "PluribusError",
    "QueueMessage",
    "Replica",
    "Room",
    "Shadow",
    "SharedSubscription",
    "SlotsHost",
    "Space",
    "Subscription",
    "TableMachine",
    "Transaction",
    "View",
    "Vocabulary",
    "__version__",
    "connect",
    "errors",
    "events",
    "exposed",
    "javaspaces",
    "objects",
    "register",
    "run",
    "sim",
    "styles",
    "sync",
    "transformation",
    "types",
]

_LATE = ("javaspaces", "objects", "sim", "styles", "sync", "types")
"""Rooms that most programs do not need; they load when first used, so that ``import pluribus`` stays quick."""


_LATE_NAMES = {
    "Cache": "runtime.group.cache",
    "DurableReplica": "runtime.keepers.durable_replica",
    "DurableSubscription": "runtime.styles.topics.follower",
    "EnrolledSlot": "runtime.styles.slots.slot",
    "Event": "pubsub.event",
    "GroupManager": "runtime.styles.conversations.application",
    "LogClient": "runtime.clients.log_client",
    "Mailbox": "runtime.styles.topics.follower",
    "Matches": "runtime.styles.topics.patterns",
    "MessageQueue": "runtime.styles.queues.queue",
    "Near": "pubsub.places",
    "Notifications": "runtime.group.notifications",
    "QueueMessage": "runtime.styles.queues.message",
    "Room": "runtime.styles.conversations.room",
    "Shadow": "runtime.styles.objects.shadows",
    "SharedSubscription": "runtime.styles.topics.shared",
    "SlotsHost": "runtime.styles.slots.hosts",
    "Space": "runtime.styles.spaces.space",
    "Subscription": "runtime.styles.topics.subscription",
    "TableMachine": "group.host.table",
    "Transaction": "runtime.styles.transactions.transaction",
    "Vocabulary": "pubsub.concepts",
    "transformation": "transformations.registry",
}
"""The same for single names, by the module that has them."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return import_module(f"{__name__}.{name}")
    if name in _LATE_NAMES:
        return getattr(import_module(f"{__name__}.{_LATE_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
