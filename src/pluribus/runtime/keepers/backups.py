"""Backups of a keeper's store, and stores made of backups. Blocking: run them in a thread, or in a process of their
own.

A backup becomes a *new* keeper, without a vote. Since the backup was made, the old keeper may have promised and
acknowledged more; under its number an older store would break these promises. The new keeper follows the log from which
it was copied, if that lives, and gets the later rows. If no keeper of that log lives, it can be forced to go on.

A store that was set aside, or that its only keeper cannot read any more, is restored in the same way: every row with
right bytes is taken over, up to the first missing row behind the snapshot.
"""

from __future__ import annotations

import os
import secrets
from contextlib import closing, suppress

import msgspec

from ...core.errors import BadInput, Damaged, MalformedFrame, Unavailable
from ...group.keepers.rows import RowHead, head_of
from ...group.keepers.voting import named
from ...group.keepers.words import Base, Meta, Snapshot, base_of, digest_of, meta_of, snapshot_of, stored
from ...store.salvage import Salvage, build_store, copy_store
from .keeper import LOG


class Backup(msgspec.Struct, frozen=True):
    """A backup that was made: where, of which keeper, of which rows."""

    path: str
    bytes: int
    keeper: str
    start: int
    end: int


class Restored(msgspec.Struct, frozen=True):
    """A store that was made of a backup: for which new keeper, with which rows."""

    path: str
    keeper: str
    start: int
    end: int
    missing: int
    """Rows before the snapshot that could not be read: events in them are gone from this copy."""
    given_up: int
    """Rows at the end that were not taken over, because an earlier row could not be read."""


def back_up(store: str, to: str) -> Backup:
    """Copy the store of a keeper that runs, or does not, to a file."""
    if "://" in store:
        raise BadInput(f"{store} is a server's: use its own backup; what is restored from it needs a new schema's name")
    size = copy_store(store, to)
    with closing(Salvage(to)) as copy:
        meta = _meta(copy)
        start, end = copy.bounds(f"{LOG}/log")
    return Backup(to, size, named(meta.keeper) if meta is not None else "", start, end)


def restore(backup: str, to: str) -> Restored:
    """Make a store of a backup, for a new keeper. ``Damaged`` if too much of it cannot be read."""
    for taken in (to, f"{to}-mark"):
        if os.path.lexists(taken):
            raise BadInput(f"{taken} is there already: name a store that is not")
    made = f"{to}-building"
    for suffix in ("", "-mark", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(made + suffix)
    with closing(Salvage(backup)) as copy:
        restored = _built(copy, backup, made)
    try:
        os.rename(f"{made}-mark", f"{to}-mark")
        os.rename(made, to)
    except OSError as error:
        raise Unavailable(f"{to} cannot be made ({error}): look at its disk") from None
    return msgspec.structs.replace(restored, path=to)


def _built(copy: Salvage, backup: str, made: str) -> Restored:
    log = f"{LOG}/log"
    start, end = copy.bounds(log)
    snapshot, parts = _snapshot(copy)
    if start > snapshot.row:
        raise Damaged(
            f"the snapshot of {backup} cannot be read, and the rows before {start} are gone: try another copy"
        )
    stop, epoch = _readable(copy, log, max(start, snapshot.row), end, snapshot.epoch)
    base = _base(copy, log, start, snapshot)
    meta = _meta(copy)
    cluster = meta.cluster if meta is not None else secrets.randbits(62) + 1
    epoch = max(epoch, base.epoch, meta.epoch if meta is not None else 0)
    record = Meta(secrets.randbits(62) + 1, cluster, epoch, logged=True)
    values = {f"{LOG}/base": stored(base), f"{LOG}/meta/a": stored(record), f"{LOG}/meta/b": stored(record)}
    if snapshot.row:
        values |= {f"{LOG}/snapshot": stored(snapshot), **parts}
    missing = build_store(made, values, log, start, copy.rows(log, start, stop))
    return Restored(made, named(record.keeper), start, stop, missing, max(end - stop, 0))


def _snapshot(copy: Salvage) -> tuple[Snapshot, dict[str, bytes]]:
    """The snapshot and its parts, by their keys; none at all if one of them cannot be read."""
    whole = copy.get(f"{LOG}/snapshot")
    snapshot = snapshot_of(whole) if whole is not None else Snapshot()
    parts: dict[str, bytes] = {}
    for part in snapshot.parts:
        key = f"{LOG}/part/{part.digest.hex()}"
        data = copy.get(key)
        if data is None or digest_of(data) != part.digest:
            return Snapshot(), {}
        parts[key] = data
    return snapshot, parts


def _readable(copy: Salvage, log: str, start: int, end: int, epoch: int) -> tuple[int, int]:
    """The end of the rows that can be taken over, and the epoch of the last of them."""
    for at, row in enumerate(copy.rows(log, start, end), start):
        head = _head(row)
        if head is None or head.hollow:  # a hollow one cannot be applied
            return at, epoch
        epoch = head.epoch
    return max(start, end), epoch


def _base(copy: Salvage, log: str, start: int, snapshot: Snapshot) -> Base:
    """What is before the first row: as it was written down, or as that row says."""
    known = copy.get(f"{LOG}/base")
    if known is not None and base_of(known).row == start:
        return base_of(known)
    head = _head(next(copy.rows(log, start, start + 1)))
    if head is None:
        return Base(start, snapshot.epoch, snapshot.index)
    return Base() if start == 0 else Base(start, head.epoch, head.first)


def _head(row: bytes | None) -> RowHead | None:
    with suppress(MalformedFrame):
        return None if row is None else head_of(row)
    return None


def _meta(copy: Salvage) -> Meta | None:
    found = copy.get(f"{LOG}/meta/a") or copy.get(f"{LOG}/meta/b")
    return None if found is None else meta_of(found)
