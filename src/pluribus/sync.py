"""Pluribus without ``await``, for scripts, notebooks and Spark executors; ``runtime/sync/bus.py`` says how it works."""

from .runtime.sync.bus import Bus, Group, connect

__all__ = ["Bus", "Group", "connect"]
