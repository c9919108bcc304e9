"""Pluribus without ``await``, for scripts, notebooks and Spark executors; ``runtime/sync.py`` says how it works."""

from .runtime.sync import Bus, Group, connect

__all__ = ["Bus", "Group", "connect"]
