"""Pluribus without ``await``, for scripts, notebooks and Spark executors; ``runtime/sync/bus.py`` says how it works.

What programs name in annotations has the name that it has in ``pluribus`` or ``pluribus.types``:
``pluribus.sync.MessageQueue``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .runtime.sync.bus import Bus, connect
from .runtime.sync.groups import Cache, DurableReplica, Group, Notifications, Objects, Relayed, Replica
from .runtime.sync.subscriptions import (
    DurableSubscription,
    Mailbox,
    Matches,
    Observed,
    SharedSubscription,
    Subscription,
)

if TYPE_CHECKING:
    from .runtime.clients.sync import SyncDoorman as Doorman
    from .runtime.keepers.sync import SyncKeepers as Keepers
    from .runtime.styles.access.sync import SyncAccess as Access
    from .runtime.styles.conversations.sync import SyncConversations as Conversations
    from .runtime.styles.conversations.sync import SyncGroupManager as GroupManager
    from .runtime.styles.conversations.sync import SyncRoom as Room
    from .runtime.styles.objects.sync import SyncCommunicator as ObjectCommunicator
    from .runtime.styles.objects.sync import SyncDirectory as ObjectDirectory
    from .runtime.styles.objects.sync import SyncHandle as Handle
    from .runtime.styles.objects.sync import SyncNetwork as VirtualNetwork
    from .runtime.styles.objects.sync import SyncQueue as CallQueue
    from .runtime.styles.objects.sync import SyncShadow as Shadow
    from .runtime.styles.objects.sync import SyncUpdates as Updates
    from .runtime.styles.objects.sync import SyncWaiting as Waiting
    from .runtime.styles.objects.sync import SyncWatching as Watching
    from .runtime.styles.queues.sync import SyncMessage as QueueMessage
    from .runtime.styles.queues.sync import SyncMessageQueue as MessageQueue
    from .runtime.styles.queues.sync import SyncMessages as Messages
    from .runtime.styles.slots.sync import SyncCommunicationsManager as CommunicationsManager
    from .runtime.styles.slots.sync import SyncEnrolledSlot as EnrolledSlot
    from .runtime.styles.slots.sync import SyncSent as Sent
    from .runtime.styles.slots.sync import SyncSlotMessage as SlotMessage
    from .runtime.styles.slots.sync import SyncSlotPort as SlotPort
    from .runtime.styles.slots.sync import SyncSlotsHost as SlotsHost
    from .runtime.styles.spaces.sync import SyncLease as Lease
    from .runtime.styles.spaces.sync import SyncRegistration as Registration
    from .runtime.styles.spaces.sync import SyncSpace as Space
    from .runtime.styles.transactions.sync import SyncTransaction as Transaction
    from .runtime.styles.transformations.sync import SyncTransformer as Transformer
    from .runtime.sync.durable import Durable, Log

__all__ = [
    "Access",
    "Bus",
    "Cache",
    "CallQueue",
    "CommunicationsManager",
    "Conversations",
    "Doorman",
    "Durable",
    "DurableReplica",
    "DurableSubscription",
    "EnrolledSlot",
    "Group",
    "GroupManager",
    "Handle",
    "Keepers",
    "Lease",
    "Log",
    "Mailbox",
    "Matches",
    "MessageQueue",
    "Messages",
    "Notifications",
    "ObjectCommunicator",
    "ObjectDirectory",
    "Objects",
    "Observed",
    "QueueMessage",
    "Registration",
    "Relayed",
    "Replica",
    "Room",
    "Sent",
    "Shadow",
    "SharedSubscription",
    "SlotMessage",
    "SlotPort",
    "SlotsHost",
    "Space",
    "Subscription",
    "Transaction",
    "Transformer",
    "Updates",
    "VirtualNetwork",
    "Waiting",
    "Watching",
    "connect",
]

_LATE_NAMES = {
    "Access": "styles.access.sync:SyncAccess",
    "CallQueue": "styles.objects.sync:SyncQueue",
    "CommunicationsManager": "styles.slots.sync:SyncCommunicationsManager",
    "Conversations": "styles.conversations.sync:SyncConversations",
    "Doorman": "clients.sync:SyncDoorman",
    "Durable": "sync.durable:Durable",
    "EnrolledSlot": "styles.slots.sync:SyncEnrolledSlot",
    "GroupManager": "styles.conversations.sync:SyncGroupManager",
    "Handle": "styles.objects.sync:SyncHandle",
    "Keepers": "keepers.sync:SyncKeepers",
    "Lease": "styles.spaces.sync:SyncLease",
    "Log": "sync.durable:Log",
    "MessageQueue": "styles.queues.sync:SyncMessageQueue",
    "Messages": "styles.queues.sync:SyncMessages",
    "ObjectCommunicator": "styles.objects.sync:SyncCommunicator",
    "ObjectDirectory": "styles.objects.sync:SyncDirectory",
    "QueueMessage": "styles.queues.sync:SyncMessage",
    "Registration": "styles.spaces.sync:SyncRegistration",
    "Room": "styles.conversations.sync:SyncRoom",
    "Sent": "styles.slots.sync:SyncSent",
    "Shadow": "styles.objects.sync:SyncShadow",
    "SlotMessage": "styles.slots.sync:SyncSlotMessage",
    "SlotPort": "styles.slots.sync:SyncSlotPort",
    "SlotsHost": "styles.slots.sync:SyncSlotsHost",
    "Space": "styles.spaces.sync:SyncSpace",
    "Transaction": "styles.transactions.sync:SyncTransaction",
    "Transformer": "styles.transformations.sync:SyncTransformer",
    "Updates": "styles.objects.sync:SyncUpdates",
    "VirtualNetwork": "styles.objects.sync:SyncNetwork",
    "Waiting": "styles.objects.sync:SyncWaiting",
    "Watching": "styles.objects.sync:SyncWatching",
}
"""Names that load when first used, by the module and the class there, so that ``import pluribus.sync`` stays quick."""


def __getattr__(name: str) -> Any:
    if name not in _LATE_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, found = _LATE_NAMES[name].partition(":")
    return getattr(import_module(f"pluribus.runtime.{module}"), found)
