"""The mark beside a store's file: how many commits were acknowledged, and the lock that keeps other processes out."""

from __future__ import annotations

import os
import struct
from zlib import crc32

from ..core.errors import Unavailable

try:
    import fcntl
except ImportError:  # not a Unix: two processes on one store are then kept apart by SQLite alone
    fcntl = None  # type: ignore[assignment]

_FORMAT = struct.Struct(">QI")


def _seek_and_write(file: int, data: bytes, at: int) -> int:
    os.lseek(file, at, os.SEEK_SET)
    return os.write(file, data)


_write = getattr(os, "pwrite", _seek_and_write)


class Mark:
    """Twelve bytes in a file of their own. Written often and never synchronised: it may lag, never lead."""

    def __init__(self, path: str) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            words = f"{path} cannot be opened ({error.strerror}): a store needs a folder to write in"
            raise Unavailable(words) from None
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._file)
                raise Unavailable(f"{path} is locked: another process uses this store; stop it first") from None

    def read(self) -> int | None:
        """None if there is no mark, or one that is damaged."""
        os.lseek(self._file, 0, os.SEEK_SET)
        data = os.read(self._file, _FORMAT.size)
        if len(data) < _FORMAT.size:
            return None
        commits, checksum = _FORMAT.unpack(data)
        return int(commits) if crc32(data[:8]) == checksum else None

    def write(self, commits: int) -> None:
        data = commits.to_bytes(8, "big")
        _write(self._file, data + crc32(data).to_bytes(4, "big"), 0)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
