"""What the methods of a bus return, by name, for annotations: ``def renew(lease: pluribus.types.Lease) -> None``.

``pluribus`` itself has the names that programs use most; ``pluribus.sync`` has the classes of its own. Nothing is
loaded before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conversations.words import GroupInfo
    from .core.ids import MessageId
    from .objects.queued import QueuedCall
    from .patterns.matcher import Match
    from .runtime.clients.doorman import Doorman
    from .runtime.group.objects import Objects
    from .runtime.group.relay import Relayed
    from .runtime.keepers.backups import Backup, Restored
    from .runtime.keepers.keepers import Keepers
    from .runtime.loop.events import Events
    from .runtime.styles.access.access import Access
    from .runtime.styles.conversations.lobby import Conversations
    from .runtime.styles.objects.communicator import ObjectCommunicator, Updates, Waiting, Watching
    from .runtime.styles.objects.directory import Listed, ObjectDirectory
    from .runtime.styles.objects.handles import Handle
    from .runtime.styles.objects.networks import VirtualNetwork
    from .runtime.styles.objects.queue import CallQueue
    from .runtime.styles.queues.message import Browsed
    from .runtime.styles.queues.receiving import Messages, Receiving
    from .runtime.styles.queues.stats import QueueStats
    from .runtime.styles.slots.communications import BusShown, CommunicationsManager
    from .runtime.styles.slots.slot import Sent, SlotMessage, SlotPort
    from .runtime.styles.spaces.space import Lease, Registration, SpaceEvent
    from .runtime.styles.spaces.spaces import SpaceInfo
    from .runtime.styles.topics.durable import Batches, Durable, Log
    from .runtime.styles.topics.observed import Observed
    from .runtime.styles.topics.pubsub import Advertisement
    from .runtime.styles.transactions.transactions import TransactionInfo
    from .runtime.styles.transformations.transformer import Transformer
    from .slots.map import BusMap
    from .tables.result import SqlTable

__all__ = [
    "Access",
    "Advertisement",
    "Backup",
    "Batches",
    "Browsed",
    "BusMap",
    "BusShown",
    "CallQueue",
    "CommunicationsManager",
    "Conversations",
    "Doorman",
    "Durable",
    "Events",
    "GroupInfo",
    "Handle",
    "Keepers",
    "Lease",
    "Listed",
    "Log",
    "Match",
    "MessageId",
    "Messages",
    "ObjectCommunicator",
    "ObjectDirectory",
    "Objects",
    "Observed",
    "QueueStats",
    "QueuedCall",
    "Receiving",
    "Registration",
    "Relayed",
    "Restored",
    "Sent",
    "SlotMessage",
    "SlotPort",
    "SpaceEvent",
    "SpaceInfo",
    "SqlTable",
    "TransactionInfo",
    "Transformer",
    "Updates",
    "VirtualNetwork",
    "Waiting",
    "Watching",
]

_LATE_NAMES = {
    "Access": "runtime.styles.access.access",
    "Advertisement": "runtime.styles.topics.pubsub",
    "Backup": "runtime.keepers.backups",
    "Batches": "runtime.styles.topics.durable",
    "Browsed": "runtime.styles.queues.message",
    "BusMap": "slots.map",
    "BusShown": "runtime.styles.slots.communications",
    "CallQueue": "runtime.styles.objects.queue",
    "CommunicationsManager": "runtime.styles.slots.communications",
    "Conversations": "runtime.styles.conversations.lobby",
    "Doorman": "runtime.clients.doorman",
    "Durable": "runtime.styles.topics.durable",
    "Events": "runtime.loop.events",
    "GroupInfo": "conversations.words",
    "Handle": "runtime.styles.objects.handles",
    "Keepers": "runtime.keepers.keepers",
    "Lease": "runtime.styles.spaces.space",
    "Listed": "runtime.styles.objects.directory",
    "Log": "runtime.styles.topics.durable",
    "Match": "patterns.matcher",
    "MessageId": "core.ids",
    "Messages": "runtime.styles.queues.receiving",
    "ObjectCommunicator": "runtime.styles.objects.communicator",
    "ObjectDirectory": "runtime.styles.objects.directory",
    "Objects": "runtime.group.objects",
    "Observed": "runtime.styles.topics.observed",
    "QueueStats": "runtime.styles.queues.stats",
    "QueuedCall": "objects.queued",
    "Receiving": "runtime.styles.queues.receiving",
    "Registration": "runtime.styles.spaces.space",
    "Relayed": "runtime.group.relay",
    "Restored": "runtime.keepers.backups",
    "Sent": "runtime.styles.slots.slot",
    "SlotMessage": "runtime.styles.slots.slot",
    "SlotPort": "runtime.styles.slots.slot",
    "SpaceEvent": "runtime.styles.spaces.space",
    "SpaceInfo": "runtime.styles.spaces.spaces",
    "SqlTable": "tables.result",
    "TransactionInfo": "runtime.styles.transactions.transactions",
    "Transformer": "runtime.styles.transformations.transformer",
    "Updates": "runtime.styles.objects.communicator",
    "VirtualNetwork": "runtime.styles.objects.networks",
    "Waiting": "runtime.styles.objects.communicator",
    "Watching": "runtime.styles.objects.communicator",
}
"""By name, the module that has it."""


def __getattr__(name: str) -> Any:
    if name not in _LATE_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__package__}.{_LATE_NAMES[name]}"), name)
