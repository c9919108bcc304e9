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
    from .runtime.styles.objects.shadows import Shadow

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Answers",
    "Bus",
    "Group",
    "GroupManager",
    "MemberId",
    "Message",
    "Opaque",
    "PluribusError",
    "Replica",
    "Shadow",
    "View",
    "__version__",
    "connect",
    "errors",
    "events",
    "exposed",
    "objects",
    "register",
    "run",
    "sim",
    "sync",
]

_LATE = ("objects", "sim", "sync")
"""Rooms that most programs do not need; they load when first used, so that ``import pluribus`` stays quick."""


def __getattr__(name: str) -> Any:
    if name == "GroupManager":
        return import_module(f"{__name__}.runtime.styles.conversations.application").GroupManager
    if name in _LATE:
        return import_module(f"{__name__}.{name}")
    if name == "Shadow":
        return import_module(f"{__name__}.runtime.styles.objects.shadows").Shadow
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
