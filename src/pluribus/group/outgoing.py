"""What a member sends on one stream: bodies gather here and leave as frames.

The batch is open while the loop's turn lasts. It closes when the turn ends, when it is full, when a body of another
kind comes, or when the window ends; closing cuts it into frames that fit the path. Between two closings a send is one
list append, so ``pending``, ``size`` and ``room`` are plain attributes that the runtime's ``send`` reads and writes
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from ..core.errors import TooLarge
from ..core.frame import Frame, Header, Parents, Piece
from ..core.ids import MessageId
from ..core.limits import (
    BATCH_MESSAGES_MAX,
    BODY_OVERHEAD_BYTES,
    FRAME_OVERHEAD_BYTES,
    PATH_BYTES_LOOPBACK,
    SEGMENTS_MAX,
)
from ..wire.bodies import BYTES, Kind, join_bodies

UNLIMITED_BYTES = 1 << 62
PARENT_BYTES = 20  # a message's identity in msgpack


class Outgoing:
    """One stream's open batch and its place in the sequence."""

    __slots__ = (
        "_granted",
        "_parents",
        "_pass_down",
        "_path",
        "_paused",
        "_sender",
        "abandoned",
        "first",
        "group",
        "kind",
        "large",
        "large_bytes",
        "longest",
        "me",
        "pending",
        "room",
        "size",
        "to",
    )

    def __init__(
        self, me: int, group: int, to: int, first: int, path_bytes: int, pass_down: Callable[[Frame], None]
    ) -> None:
        self.me = me
        self._sender = int(me)  # msgspec encodes exact ints only
        self.group = group
        self.to = int(to)
        self.first = first
        self.kind: Kind = BYTES
        self.pending: list[bytes] = []
        self._parents: dict[int, MessageId] = {}
        self.size = 0
        self.room = 0
        self._path = path_bytes - FRAME_OVERHEAD_BYTES
        self.longest = self._path - BODY_OVERHEAD_BYTES
        """The largest body that fits a frame."""
        self.large = 0
        self.large_bytes = 0
        """Messages larger than that which are on their way in pieces."""
        self.abandoned: list[int] = []
        """Those of which no more pieces will come; the receivers are still to be told."""
        self._pass_down = pass_down
        self._paused = False
        self._granted = 0
        self.granted(UNLIMITED_BYTES)

    def granted(self, room_bytes: int) -> None:
        """How large the open batch may grow: several frames on a short path, so that the kernel can segment them."""
        whole = min(self._path * SEGMENTS_MAX, PATH_BYTES_LOOPBACK - FRAME_OVERHEAD_BYTES)
        self._granted = min(max(self._path, whole), room_bytes)
        self.room = -1 if self._paused else self._granted

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self.room = -1 if paused else self._granted

    def fits(self, kind: Kind, size: int) -> bool:
        """Whether a body may join the open batch. An empty one takes any body while the window is open at all: a window
        smaller than a message would otherwise wait for ever."""
        if not self.pending:
            return self.room > 0
        return kind == self.kind and self.size + size + BODY_OVERHEAD_BYTES <= self.room

    @property
    def end(self) -> int:
        """The number after the last that is used or promised."""
        return self.first + len(self.pending) + len(self.abandoned)

    def check(self, size: int) -> None:
        if size > self.longest:
            raise TooLarge(
                f"a body of {size:,} bytes does not fit a datagram of this path ({self.longest:,} bytes): this stack "
                "does not cut messages, choose one that does or send it in parts"
            )

    def add(self, kind: Kind, encoded: bytes, parent: MessageId | None = None) -> int:
        """Append a body that fits; its sequence number. ``parent`` is the message that it answers."""
        self.kind = kind
        self.pending.append(encoded)
        self.size += len(encoded) + BODY_OVERHEAD_BYTES
        number = self.first + len(self.pending) - 1
        if parent is not None:
            self._parents[number] = (int(parent[0]), parent[1])
            self.size += PARENT_BYTES
        return number

    def close(self) -> None:
        """Send what gathered, as frames that fit the path."""
        if self.pending:
            self._close_batch()
        while self.abandoned:
            self._pass_piece(Piece(self.abandoned.pop(0), 0, 0, BYTES), b"", None)

    def send_piece(self, piece: Piece, body: bytes, parent: MessageId | None) -> int:
        """A frame with one piece of a larger message, behind what gathered before; the piece's number."""
        self.close()
        return self._pass_piece(piece, body, parent)

    def _pass_piece(self, piece: Piece, body: bytes, parent: MessageId | None) -> int:
        headers: list[Header] = [piece]
        if parent is not None:
            headers.append(Parents([(int(parent[0]), parent[1])]))
        number = self.first
        self.first += 1
        frame = Frame(
            sender=self._sender,
            to=self.to,
            group=self.group,
            first=number,
            count=1,
            size=len(body),
            headers=headers,
            bodies=[body],
        )
        self._pass_down(frame)
        return number

    def _close_batch(self) -> None:
        pending, self.pending, self.size = self.pending, [], 0
        parents, self._parents = self._parents, {}
        kind = self.kind
        for bodies, size in self._cut(pending, PARENT_BYTES if parents else 0):
            frame = Frame(
                sender=self._sender,
                to=self.to,
                group=self.group,
                first=self.first,
                count=len(bodies),
                size=size,
                kind=kind,
                headers=self._answers(parents, len(bodies)) if parents else [],
                bodies=join_bodies(kind, bodies),
            )
            self.first += len(bodies)
            self._pass_down(frame)

    def _answers(self, parents: dict[int, MessageId], count: int) -> list[Parents]:
        of = [parents.get(number) for number in range(self.first, self.first + count)]
        return [Parents(of)] if any(of) else []

    def _cut(self, pending: list[bytes], extra_bytes: int = 0) -> Iterator[tuple[list[bytes], int]]:
        """Runs of bodies that fit a frame each, with their size. Equal bodies, the usual case, cost no loop."""
        overhead = BODY_OVERHEAD_BYTES + extra_bytes
        sizes = list(map(len, pending))
        total = sum(sizes)
        if total + overhead * len(pending) <= self._path and len(pending) <= BATCH_MESSAGES_MAX:
            yield pending, total
            return
        if min(sizes) == max(sizes):
            step = max(min(self._path // (sizes[0] + overhead), BATCH_MESSAGES_MAX), 1)
            for at in range(0, len(pending), step):
                run = pending[at : at + step]
                yield run, sizes[0] * len(run)
            return
        ends = list(accumulate(size + overhead for size in sizes))
        start, base = 0, 0
        for at, end in enumerate(ends):
            if end - base > self._path or at - start >= BATCH_MESSAGES_MAX:
                yield pending[start:at], sum(sizes[start:at])
                start, base = at, ends[at - 1]
        yield pending[start:], sum(sizes[start:])
