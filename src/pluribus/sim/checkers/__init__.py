"""Promises as functions that read a history, a file a subject. The three that every scenario can use are here."""

from .delivery import Checker, fifo, integrity, reached

__all__ = ["Checker", "fifo", "integrity", "reached"]
