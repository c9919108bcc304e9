"""The files of a store that is given up are renamed, never deleted, and a new store takes their place.

A new store in the place of one that is broken is built under another name first. Then the old files are renamed, those
of SQLite's log before the database, because a log beside a database that is not its own would be played into it; last
comes the new one. A crash in between leaves a finished new store without an old one, and the next start goes on there.
"""

from __future__ import annotations

import os
from contextlib import suppress

ASIDE_MAX = 1_000
"""Stores that were given up under one name, at most."""
LOG_SUFFIXES = ("-wal", "-shm")


def building(path: str) -> str:
    """The path at which a new store is made."""
    return f"{path}-building"


def remove_unfinished(path: str) -> None:
    """Remove the rest of an earlier attempt; all of its data is elsewhere too."""
    for suffix in ("", "-mark", *LOG_SUFFIXES):
        with suppress(FileNotFoundError):
            os.unlink(building(path) + suffix)


def finished(path: str) -> None:
    """The new store is complete and closed."""
    os.replace(building(path), f"{path}-new")
    remove_unfinished(path)
    _sync_folder(path)


def set_aside(path: str) -> str:
    """Rename the files that are there; returns the new path."""
    aside = next(name for number in range(1, ASIDE_MAX) if not os.path.lexists(name := f"{path}-broken-{number}"))
    for suffix in (*LOG_SUFFIXES, ""):
        with suppress(FileNotFoundError):
            os.rename(path + suffix, aside + suffix)
    _sync_folder(path)
    return aside


def put_in_place(path: str) -> None:
    """Move a finished new store to its place, if there is one and the place is free."""
    new = f"{path}-new"
    if os.path.exists(new):
        if os.path.exists(path):  # it was never needed: the old store is still there
            os.unlink(new)
        else:
            os.rename(new, path)
        _sync_folder(path)


def _sync_folder(path: str) -> None:
    with suppress(OSError):  # not every system can open a directory
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
