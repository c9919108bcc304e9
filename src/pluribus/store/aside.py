"""The files of a store that is given up: set aside under another name, never deleted; and the way to a new one.

A new store in the place of one that is broken is built under another name first. Then the old files are renamed, those
of SQLite's log before the database, because a log beside a database that is not its own would be played into it; last
comes the new one. A crash in between leaves a finished new store beside no old one, and the next start goes on there.
"""

from __future__ import annotations

import os
from contextlib import suppress

ASIDE_MAX = 1_000
"""Stores that were given up under one name."""
LOG_SUFFIXES = ("-wal", "-shm")


def building(path: str) -> str:
    """Where a new store is made."""
    return f"{path}-building"


def remove_unfinished(path: str) -> None:
    """What an earlier attempt left; it holds nothing that is not elsewhere."""
    for suffix in ("", "-mark", *LOG_SUFFIXES):
        with suppress(FileNotFoundError):
            os.unlink(building(path) + suffix)


def finished(path: str) -> None:
    """The new store is whole and closed."""
    os.replace(building(path), f"{path}-new")
    remove_unfinished(path)
    _sync_folder(path)


def set_aside(path: str) -> str:
    """Rename what is there; where to."""
    aside = next(name for number in range(1, ASIDE_MAX) if not os.path.lexists(name := f"{path}-broken-{number}"))
    for suffix in (*LOG_SUFFIXES, ""):
        with suppress(FileNotFoundError):
            os.rename(path + suffix, aside + suffix)
    _sync_folder(path)
    return aside


def put_in_place(path: str) -> None:
    """A finished new store, if there is one and nothing else is in its place."""
    new = f"{path}-new"
    if os.path.exists(new):
        if os.path.exists(path):  # it was never needed: the old one is where it was
            os.unlink(new)
        else:
            os.rename(new, path)
        _sync_folder(path)


def _sync_folder(path: str) -> None:
    with suppress(OSError):  # not every system opens folders
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
