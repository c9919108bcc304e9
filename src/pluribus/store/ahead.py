"""Room in SQLite's write-ahead log before it is needed.

A commit that makes a file longer costs the file system a journal entry of its own, besides the bytes: on ext4 about as
much again as the bytes themselves. SQLite writes its write-ahead log again from the beginning after each checkpoint,
so it grows only at first; a store that is written to is therefore given all of it at once, as zeros. To SQLite they
are frames that were never written: reading a log ends at the first frame whose salt and checksum are not right
(https://www.sqlite.org/fileformat2.html, section 4.4), and a page number of 0 is never right.
"""

from __future__ import annotations

import os
from contextlib import suppress

PAGE_BYTES = 8_192
"""The page size of a new database. A row is a batch of events: in larger pages it is written and read with fewer calls;
but a commit writes at least two or three pages."""
CHECKPOINT_BYTES = 8 << 20
"""Bytes of pages in SQLite's log at which it is copied into the database."""
SLACK_BYTES = 1 << 20
"""Room for the commit that reaches that size, and for the next one, which copies the log: both may be large."""
FRAME_HEAD_BYTES, LOG_HEAD_BYTES = 24, 32
AFTER_COMMITS = 32
"""Commits before the room is made: a store that is opened and hardly written to need not be given 9 MB."""
ZEROS = bytes(1 << 20)


def room_bytes(page_bytes: int) -> int:
    return LOG_HEAD_BYTES + (CHECKPOINT_BYTES + SLACK_BYTES) // page_bytes * (FRAME_HEAD_BYTES + page_bytes)


def make_room(path: str, page_bytes: int) -> None:
    """Lengthen the log of the database at ``path``. It only makes commits faster: a full disk is reported by the next
    write."""
    with suppress(OSError):
        log = os.open(f"{path}-wal", os.O_RDWR | getattr(os, "O_BINARY", 0))
        try:
            at, wanted = os.fstat(log).st_size, room_bytes(page_bytes)
            os.lseek(log, at, os.SEEK_SET)
            while at < wanted:
                at += os.write(log, ZEROS[: wanted - at])
            os.fsync(log)
        finally:
            os.close(log)
