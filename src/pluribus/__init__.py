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
    from .pubsub.concepts import Vocabulary
    from .pubsub.event import Event
    from .pubsub.places import Near
    from .runtime.clients.log_client import LogClient
    from .runtime.styles.conversations.application import GroupManager
    from .runtime.styles.objects.shadows import Shadow
    from .runtime.styles.spaces.space import Space
    from .runtime.styles.topics.follower import DurableSubscription
    from .runtime.styles.topics.subscription import Subscription
    from .transformations.registry import transformation

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Answers",
    "Bus",
    "DurableSubscription",
    "Event",
    "Group",
    "GroupManager",
    "LogClient",
    "MemberId",
    "Message",
    "Near",
    "Opaque",
    "PluribusError",
    "Replica",
    "Shadow",
    "Space",
    "Subscription",
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
    "sync",
    "transformation",
]

_LATE = ("javaspaces", "objects", "sim", "sync")
"""Rooms that most programs do not need; they load when first used, so that ``import pluribus`` stays quick."""


_LATE_NAMES = {
    "DurableSubscription": "runtime.styles.topics.follower",
    "Event": "pubsub.event",
    "LogClient": "runtime.clients.log_client",
    "GroupManager": "runtime.styles.conversations.application",
    "Near": "pubsub.places",
    "Space": "runtime.styles.spaces.space",
    "Shadow": "runtime.styles.objects.shadows",
    "Subscription": "runtime.styles.topics.subscription",
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
