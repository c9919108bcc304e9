"""Pluribus without ``await``, for scripts, notebooks and Spark executors; ``runtime/sync/bus.py`` says how it works.

What programs name in annotations has the name that it has in ``pluribus``: ``pluribus.sync.MessageQueue``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .runtime.sync.bus import Bus, connect
from .runtime.sync.groups import Cache, DurableReplica, Group, Notifications, Replica
from .runtime.sync.subscriptions import DurableSubscription, Mailbox, Matches, SharedSubscription, Subscription

if TYPE_CHECKING:
    from .runtime.styles.conversations.sync import SyncRoom as Room
    from .runtime.styles.objects.sync import SyncShadow as Shadow
    from .runtime.styles.queues.sync import SyncMessage as QueueMessage
    from .runtime.styles.queues.sync import SyncMessageQueue as MessageQueue
    from .runtime.styles.slots.sync import SyncEnrolledSlot as EnrolledSlot
    from .runtime.styles.slots.sync import SyncSlotsHost as SlotsHost
    from .runtime.styles.spaces.sync import SyncSpace as Space
    from .runtime.styles.transactions.sync import SyncTransaction as Transaction

__all__ = [
    "Bus",
    "Cache",
    "DurableReplica",
    "DurableSubscription",
    "EnrolledSlot",
    "Group",
    "Mailbox",
    "Matches",
    "MessageQueue",
    "Notifications",
    "QueueMessage",
    "Replica",
    "Room",
    "Shadow",
    "SharedSubscription",
    "SlotsHost",
    "Space",
    "Subscription",
    "Transaction",
    "connect",
]

_LATE_NAMES = {
    "EnrolledSlot": "slots.sync:SyncEnrolledSlot",
    "MessageQueue": "queues.sync:SyncMessageQueue",
    "QueueMessage": "queues.sync:SyncMessage",
    "Room": "conversations.sync:SyncRoom",
    "Shadow": "objects.sync:SyncShadow",
    "SlotsHost": "slots.sync:SyncSlotsHost",
    "Space": "spaces.sync:SyncSpace",
    "Transaction": "transactions.sync:SyncTransaction",
}
"""Names that load when first used, by the style that has them, so that ``import pluribus.sync`` stays quick."""


def __getattr__(name: str) -> Any:
    if name not in _LATE_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, found = _LATE_NAMES[name].partition(":")
    return getattr(import_module(f"pluribus.runtime.styles.{module}"), found)
