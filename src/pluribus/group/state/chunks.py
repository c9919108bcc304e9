"""A snapshot on its way: the member that took it keeps it in chunks; the member that needs it pulls them.

The puller decides how much is under way: it asks for a window of chunks, for more as they come, and again for lost
ones. The window grows while chunks come as quickly as the quickest did. It halves when chunks are lost, or late: late
chunks wait in a queue somewhere, and the group's messages with them. So a large state does not delay the group's
messages, even over a slow line. Requests without an answer are repeated less and less often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...core.errors import TooLarge
from .words import Seen

STATE_BYTES_MAX = 1 << 30
WINDOW_BYTES_MIN = 16 << 10
WINDOW_BYTES_MAX = 2 << 20
CHUNKS_PER_WANT_MAX = 256
LATE_S = 0.1
"""A chunk that takes so much longer than the quickest one is late."""
AGAIN_S_MIN = 0.1
AGAIN_S_MAX = 3.0


class Snapshot:
    """The result of ``snapshot()``: bytes, or an iterator of parts that are fetched when they are asked for."""

    def __init__(
        self, point: int, seen: list[Seen], state: bytes | Iterable[bytes], chunk_bytes: int, number: int = 0
    ) -> None:
        self.number = number
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
    """The puller's side of one transfer: the chunks that came, and those to ask for next."""

    def __init__(self, provider: int, number: int, chunk_bytes: int, buffer_bytes: int, now: float) -> None:
        self.provider = provider
        self.number = number
        self.point = -1
        """Of the snapshot, once the first chunk is there."""
        self.seen: list[Seen] = []
        self._snapshot = (-1, -1)
        self.size = 0
        self.begun_at = now
        self._parts: dict[int, bytes] = {}
        self._last = -1
        self._low = 0
        self._asked: dict[int, float] = {}
        """Chunks that were asked for, and when."""
        self._next = 0
        self._window_min = max(WINDOW_BYTES_MIN // chunk_bytes, 2)
        self._window_max = max(min(WINDOW_BYTES_MAX, buffer_bytes // 4) // chunk_bytes, self._window_min)
        self._window = self._window_min
        self._halved_at = now
        self._quickest_s = AGAIN_S_MAX
        self._usual_s = 0.0
        self._heard_at = now
        self._again_s = AGAIN_S_MIN

    @property
    def done(self) -> bool:
        return 0 <= self._last < self._low

    @property
    def started(self) -> bool:
        return self._low > 0 or bool(self._parts)

    def same(self, number: int, point: int) -> bool:
        """Whether a chunk is of the snapshot that this transfer began with. A provider that left the group and is back
        counts its snapshots from 0 again, but those are of a later point."""
        if self._snapshot == (-1, -1):
            self._snapshot = (number, point)
        return self._snapshot == (number, point)

    def state(self) -> bytes:
        return b"".join(self._parts[index] for index in range(1, self._last + 1))

    def wants(self, now: float) -> list[tuple[int, int]]:
        """The next chunks to ask for, once half of the window is free; a few large requests, not many small ones."""
        top = self._low + self._window
        if self._last >= 0:
            top = min(top, self._last + 1)
        if top <= self._next or (top - self._next < self._window // 2 and self._last < 0):
            return []
        first, self._next = self._next, top
        self._asked |= dict.fromkeys(range(first, top), now)
        return [(at, min(at + CHUNKS_PER_WANT_MAX, top)) for at in range(first, top, CHUNKS_PER_WANT_MAX)]

    def take(self, index: int, data: bytes, now: float, *, last: bool) -> bool:
        """Take a chunk; true if it is new. ``TooLarge`` if the state exceeds its limit."""
        asked_at = self._asked.pop(index, None)
        self._heard_at = now
        if index in self._parts or index < self._low:
            return False
        if asked_at is not None:
            self._took(now - asked_at, now)
        self._parts[index] = data
        self.size += len(data)
        if self.size > STATE_BYTES_MAX:
            raise _too_large(self.size)
        if last:
            self._last = index
        while self._low in self._parts:
            self._low += 1
        return True

    def _took(self, took_s: float, now: float) -> None:
        if self.point >= 0:  # the first chunk may have waited for a reader, not in a queue
            self._quickest_s = min(self._quickest_s, took_s)
            self._usual_s = took_s if not self._usual_s else 0.8 * self._usual_s + 0.2 * took_s
        self._again_s = min(max(AGAIN_S_MIN, 2 * self._usual_s), AGAIN_S_MAX)
        if took_s > self._quickest_s + LATE_S:
            self._halve(now)
        else:
            self._window = min(self._window + 1, self._window_max)

    def _halve(self, now: float) -> None:
        """Halve the window; at most once for chunks that were asked for before the last halving."""
        if now - self._halved_at >= self._usual_s:
            self._halved_at = now
            self._window = max(self._window // 2, self._window_min)

    def overdue(self, now: float) -> list[tuple[int, int]]:
        """Chunks to be asked for again, if nothing has come for long enough."""
        if self.done or now - self._heard_at < self._again_s:
            return []
        self._heard_at = now
        self._again_s = min(2 * self._again_s, AGAIN_S_MAX)
        self._halve(now)
        gaps: list[tuple[int, int]] = []
        for index in sorted(self._asked)[: min(self._window, CHUNKS_PER_WANT_MAX)]:
            self._asked[index] = now
            if gaps and gaps[-1][1] == index:
                gaps[-1] = (gaps[-1][0], index + 1)
            else:
                gaps.append((index, index + 1))
        return gaps


def _too_large(size: int) -> TooLarge:
    return TooLarge(f"a state of {size:,} bytes exceeds {STATE_BYTES_MAX:,}: keep the bulk of it elsewhere")
