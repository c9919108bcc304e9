"""Pluribus without ``await``, for scripts, notebooks and Spark executors; ``runtime/sync/bus.py`` says how it works."""

from .runtime.sync.bus import Bus, connect
from .runtime.sync.groups import Group
from .runtime.sync.topics import Subscription

__all__ = ["Bus", "Group", "Subscription", "connect"]
