"""A snapshot on its way: kept in chunks by who took it, pulled chunk by chunk by who needs it.

The puller decides what is under way: it asks for a window of chunks, for more as they come, and again for what did not
come. The window halves when something was lost and grows when all is well, up to a fraction of what the receiver's
socket can hold; so a large state passes beside the group's messages and not in front of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...core.errors import TooLarge
from .words import Seen

STATE_BYTES_MAX = 1 << 30
WINDOW_CHUNKS_MIN = 4
WINDOW_BYTES_MAX = 2 << 20
GROWTH_CHUNKS = 2
QUIET_TICKS = 2
"""After so many ticks without a chunk, chunks were lost."""


class Snapshot:
    """What ``snapshot()`` gave: bytes, or an iterator of parts that are fetched when somebody asks for them."""

    def __init__(self, point: int, seen: list[Seen], state: bytes | Iterable[bytes], chunk_bytes: int) -> None:
        self.point = point
        self.seen = seen
        self.used_at = 0.0
        self._chunk_bytes = chunk_bytes
        self._whole = memoryview(state if isinstance(state, bytes) else b"")
        self._parts: Iterator[bytes] | None = None if isinstance(state, bytes) else iter(state)
        self._chunks: list[bytes] = []
        self._rest = bytearray()
        self._fetched_bytes = 0
        if len(self._whole) > STATE_BYTES_MAX:
            raise _too_large(len(self._whole))
        self._of_parts = self._parts is not None

    def chunk(self, index: int) -> tuple[bytes, bool] | None:
        """The data of a chunk from 1 on, and whether it is the last; None if there is no such chunk."""
        if not self._of_parts:
            size, length = self._chunk_bytes, len(self._whole)
            last = max(-(-length // size), 1)
            return (bytes(self._whole[(index - 1) * size : index * size]), index == last) if index <= last else None
        while self._parts is not None and len(self._chunks) <= index:  # one more, to know which is the last
            self._fetch()
        if index > len(self._chunks):
            return None
        return self._chunks[index - 1], self._parts is None and index == len(self._chunks)

    def _fetch(self) -> None:
        part = None if self._parts is None else next(self._parts, None)
        size = self._chunk_bytes
        if part is None:
            self._parts = None
            if self._rest or not self._chunks:
                self._chunks.append(bytes(self._rest))
                self._rest.clear()
            return
        self._fetched_bytes += len(part)
        if self._fetched_bytes > STATE_BYTES_MAX:
            raise _too_large(self._fetched_bytes)
        self._rest += part
        whole = len(self._rest) // size * size
        self._chunks += [bytes(self._rest[at : at + size]) for at in range(0, whole, size)]
        del self._rest[:whole]


class Pull:
    """The puller's side of one transfer: what came, and what to ask for next."""

    def __init__(self, provider: int, number: int, chunk_bytes: int, buffer_bytes: int) -> None:
        self.provider = provider
        self.number = number
        self.point = -1
        """Of the snapshot, once the first chunk is there."""
        self.seen: list[Seen] = []
        self.size = 0
        self.quiet = 0
        """Ticks of the clock since the last chunk came."""
        self._parts: dict[int, bytes] = {}
        self._last = -1
        self._low = 0
        self._asked = 0
        self._window = WINDOW_CHUNKS_MIN
        self._window_max = max(min(WINDOW_BYTES_MAX, buffer_bytes // 4) // chunk_bytes, WINDOW_CHUNKS_MIN)

    @property
    def done(self) -> bool:
        return 0 <= self._last < self._low

    @property
    def started(self) -> bool:
        return self._low > 0 or bool(self._parts)

    def state(self) -> bytes:
        return b"".join(self._parts[index] for index in range(1, self._last + 1))

    def wants(self) -> tuple[int, int] | None:
        """The next chunks to ask for, once half of the window is free; a few large requests, not many small ones."""
        top = self._low + self._window
        if self._last >= 0:
            top = min(top, self._last + 1)
        if top - self._asked < max(self._window // 2, 1) and not (self._last >= 0 and top > self._asked):
            return None
        if top <= self._asked:
            return None
        first, self._asked = self._asked, top
        return first, top

    def take(self, index: int, data: bytes, *, last: bool) -> bool:
        """Whether this chunk is news. ``TooLarge`` if it is one too many."""
        self.quiet = 0
        if index in self._parts or index < self._low:
            return False
        self._parts[index] = data
        self.size += len(data)
        if self.size > STATE_BYTES_MAX:
            raise _too_large(self.size)
        if last:
            self._last = index
        while self._low in self._parts:
            self._low += 1
            self._window = min(self._window + GROWTH_CHUNKS, self._window_max)
        return True

    def overdue(self) -> list[tuple[int, int]]:
        """The clock ticked. If nothing came meanwhile, what is missing of what was asked for, to be asked for again."""
        self.quiet += 1
        if self.quiet < QUIET_TICKS or self.done:
            return []
        self._window = max(self._window // 2, WINDOW_CHUNKS_MIN)
        top = max(self._asked, self._low + 1)
        missing = [index for index in range(self._low, top) if index not in self._parts][: self._window]
        gaps: list[tuple[int, int]] = []
        for index in missing:
            if gaps and gaps[-1][1] == index:
                gaps[-1] = (gaps[-1][0], index + 1)
            else:
                gaps.append((index, index + 1))
        return gaps


def _too_large(size: int) -> TooLarge:
    return TooLarge(f"a state of {size:,} bytes exceeds {STATE_BYTES_MAX:,}: keep the bulk of it elsewhere")
