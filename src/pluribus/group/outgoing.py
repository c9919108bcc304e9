"""One outgoing stream of a member: bodies gather in a batch and leave as frames.

The batch is open while the loop's turn lasts. It closes when the turn ends, when it is full, when a body of another
kind comes, or when the window is full; closing cuts it into frames that fit the path. Between two closings a send is
one list append, which the runtime's ``send`` makes itself: ``ids`` has an identity for every body that the batch still
takes, as long as none is longer than ``alike``. So nothing is counted for each message; sizes are added up when they
are needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from typing import Any

from .._speed.quick import OpenBatch
from ..core.errors import TooLarge
from ..core.frame import Frame, Header, Parents, Piece
from ..core.ids import MessageId
from ..core.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    BODY_OVERHEAD_BYTES,
    FEW_MESSAGES,
    FRAME_OVERHEAD_BYTES,
    LONG_MESSAGE_BYTES,
    PATH_BYTES_LOOPBACK,
    SEGMENTS_MAX,
)
from ..wire.bodies import BYTES, Kind, join_bodies, runs

PARENT_BYTES = 20  # a message's identity in msgpack


class Outgoing(OpenBatch):
    """One stream's open batch and its place in the sequence."""

    __slots__ = (
        "_few_room",
        "_granted",
        "_long",
        "_parents",
        "_pass_down",
        "_path",
        "_paused",
        "_sender",
        "_weighed",
        "_weight",
        "abandoned",
        "batched",
        "first",
        "group",
        "kind",
        "large",
        "large_bytes",
        "longest",
        "me",
        "room",
        "to",
        "usual",
    )

    def __init__(
        self,
        me: int,
        group: int,
        to: int,
        first: int,
        path_bytes: int,
        pass_down: Callable[[Frame], None],
        long_bytes: int = 0,
    ) -> None:
        """Frames fit ``path_bytes``; those of a few long messages ``long_bytes``, if that is more."""
        self.me = me
        self._sender = int(me)  # msgspec encodes exact ints only
        self.group = group
        self.to = int(to)
        self.first = first
        self.kind: Kind = BYTES
        self._parents: dict[int, MessageId] = {}
        self.batched = 0
        """How many bodies the last batch had."""
        self.room = self._few_room = 0
        self._begin_batch()
        self._path = path_bytes - FRAME_OVERHEAD_BYTES
        self._long = max(path_bytes, long_bytes) - FRAME_OVERHEAD_BYTES
        self.usual = self._path - BODY_OVERHEAD_BYTES
        """Bytes that short messages may have together in a frame."""
        self.longest = self._long - BODY_OVERHEAD_BYTES
        """The largest body that fits a frame."""
        self.large = 0
        self.large_bytes = 0
        """Bytes of larger messages that are on their way in pieces."""
        self.abandoned: list[int] = []
        """Messages of which no more pieces will come; the receivers are still to be told."""
        self._pass_down = pass_down
        self._paused = False
        self._granted = 0
        self.granted(PATH_BYTES_LOOPBACK)  # one frame, until a layer below tells what there is room for

    def granted(self, room_bytes: int) -> None:
        """How large the open batch may grow: several frames on a short path, so that the kernel can segment them."""
        whole = min(self._path * SEGMENTS_MAX, PATH_BYTES_LOOPBACK - FRAME_OVERHEAD_BYTES)
        self._granted = min(max(self._path, whole), room_bytes)
        several = min(self._path * SEGMENTS_MAX, BATCH_BYTES_MAX - FRAME_OVERHEAD_BYTES)
        self._few_room = min(max(self._granted, several), room_bytes)
        self._set_room()

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._set_room()

    def _set_room(self) -> None:
        self.room = -1 if self._paused else self._granted
        self._take_more()

    @property
    def size(self) -> int:
        """The size of the open batch, with the most that encoding can add."""
        unweighed = len(self.pending) - self._weighed
        if unweighed:
            self._weight += sum(map(len, self.pending[-unweighed:])) + BODY_OVERHEAD_BYTES * unweighed
            self._weighed += unweighed
        return self._weight

    def _begin_batch(self) -> None:
        """Begin an empty batch. Its first body comes through ``add``, so that the caller learns that it must be
        closed."""
        self.pending = []
        self._weight = self._weighed = 0
        self.type = None
        self._take_more()

    def _take_more(self) -> None:
        """Fill ``ids`` with identities for the bodies, as long as the last, that callers may append by themselves.
        Longer bodies come through ``add``, and all bodies do when the batch is empty, full, or of another kind."""
        alike, places, gathered = -1, 0, len(self.pending)
        if gathered and self.type is not None:
            alike = len(self.pending[-1])
            each = alike + BODY_OVERHEAD_BYTES
            places = max((self.room - self.size) // each, 0)
            if gathered + places < FEW_MESSAGES and self.room > 0:
                places = max(min((self._few_room - self.size) // each, FEW_MESSAGES - gathered), 0)
        following = self.first + gathered
        self.ids = zip(repeat(self.me), range(following, following + places))
        self.alike = alike

    def fits(self, kind: Kind, size: int) -> bool:
        """Whether a body may join the open batch. An empty one takes any body while the window is open at all: a window
        smaller than a message would otherwise wait for ever."""
        if not self.pending:
            return self.room > 0
        room = self._few_room if len(self.pending) < FEW_MESSAGES and self.room > 0 else self.room
        return kind == self.kind and self.size + size + BODY_OVERHEAD_BYTES <= room

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

    def add(self, kind: Kind, encoded: bytes, parent: MessageId | None = None, typed: type | None = None) -> int:
        """Append a body that fits; its sequence number. ``parent`` is the message that it answers. ``typed`` is a type
        all of whose instances are of this kind."""
        self.kind = kind
        self.type = bytes if kind == BYTES else typed
        number = self.first + len(self.pending)
        self.pending.append(encoded)
        if parent is not None:
            self._parents[number] = (int(parent[0]), parent[1])
            self._weight += PARENT_BYTES
        self._take_more()
        return number

    def send_alone(self, body: bytes, kind: Kind = BYTES) -> None:
        """A batch of one, without gathering: what ``add`` and ``close`` would do to an empty batch."""
        self.first += 1
        self.batched = 1
        self._pass_down(
            Frame(
                sender=self._sender,
                to=self.to,
                group=self.group,
                first=self.first - 1,
                count=1,
                size=len(body),
                kind=kind,
                headers=[],
                bodies=[body],
            )
        )

    def takes(self, bodies: Iterable[Any]) -> int:
        """How many of these bodies, a few long ones, there is room for now."""
        if self.room <= 0:
            return 0
        return bisect_right(list(accumulate(len(body) + BODY_OVERHEAD_BYTES for body in bodies)), self._few_room)

    def send_each(self, bodies: Sequence[Any], kind: Kind) -> None:
        """Send each body in a frame of its own, without gathering."""
        first = self.first
        self.first += len(bodies)
        self.batched = len(bodies)
        for number, body in enumerate(bodies, first):
            self._pass_down(self._frame(number, kind, [body], len(body), []))

    def close(self) -> None:
        """Send the gathered bodies, as frames that fit the path."""
        if self.pending:
            self._close_batch()
        while self.abandoned:
            self._pass_piece(Piece(self.abandoned.pop(0), 0, 0, BYTES), b"", None)

    def give_up(self) -> int:
        """Drop the gathered bodies; returns how many. Their numbers are used again, so that the stream has no gap."""
        given_up = len(self.pending)
        self._parents.clear()
        self._begin_batch()
        return given_up

    def send_piece(self, piece: Piece, body: bytes, parent: MessageId | None) -> int:
        """A frame with one piece of a larger message, behind what gathered before; the piece's number."""
        self.close()
        return self._pass_piece(piece, body, parent)

    def send_frame(self, header: Header, kind: Kind, bodies: list[bytes], size: int) -> int:
        """A frame that was put together elsewhere, behind what gathered before; the number after its last message."""
        self.close()
        number = self.first
        self.first += len(bodies)
        self._begin_batch()
        self._pass_down(self._frame(number, kind, bodies, size, [header]))
        return self.first

    def _pass_piece(self, piece: Piece, body: bytes, parent: MessageId | None) -> int:
        headers: list[Header] = [piece]
        if parent is not None:
            headers.append(Parents([(int(parent[0]), parent[1])]))
        number = self.first
        self.first += 1
        self._begin_batch()
        self._pass_down(self._frame(number, BYTES, [body], len(body), headers))
        return number

    def _close_batch(self) -> None:
        pending, whole, first = self.pending, self.size, self.first
        self.batched = len(pending)
        parents, self._parents = self._parents, {}
        kind = self.kind
        self.first = first + len(pending)
        self._begin_batch()
        if len(pending) == 1 and not parents:  # the usual case between batches: an answer, a question
            self._pass_down(self._frame(first, kind, pending, len(pending[0]), []))
            return
        for bodies, size in self._cut(pending, whole, PARENT_BYTES if parents else 0):
            headers: list[Header] = [*_answers(parents, first, len(bodies))] if parents else []
            self._pass_down(self._frame(first, kind, bodies, size, headers))
            first += len(bodies)

    def _frame(self, first: int, kind: Kind, bodies: list[bytes], size: int, headers: list[Header]) -> Frame:
        return Frame(
            sender=self._sender,
            to=self.to,
            group=self.group,
            first=first,
            count=len(bodies),
            size=size,
            kind=kind,
            headers=headers,
            bodies=join_bodies(kind, bodies),
        )

    def _cut(self, pending: list[bytes], size: int, extra_bytes: int = 0) -> Iterator[tuple[list[bytes], int]]:
        """Runs of bodies that fit a frame each, with their sizes. A batch that fits a frame needs no loop."""
        overhead = BODY_OVERHEAD_BYTES + extra_bytes
        if not extra_bytes and size <= self._path and len(pending) <= BATCH_MESSAGES_MAX:
            yield pending, size - overhead * len(pending)
            return
        yield from runs(pending, self._long if size >= LONG_MESSAGE_BYTES * len(pending) else self._path, overhead)


def _answers(parents: dict[int, MessageId], first: int, messages: int) -> list[Parents]:
    of = [parents.get(number) for number in range(first, first + messages)]
    return [Parents(of)] if any(of) else []
