"""Fragment: frames that are longer than the path travel in pieces.

Theory of operation
-------------------
Batches of messages are made to fit the path, so few frames are too long: digests and proposals of a bus with very many
groups, dependency vectors of very many members. The transport notices when it has encoded such a frame, and offers the
bytes to the layers above (``TooLong``). This layer cuts them into numbered pieces, each a frame of its own, and joins
them on the other side. A frame that fits does not pass through this layer on its way down, and costs one look at its
header on its way up.

Promises: what is passed up was encoded by its sender as one frame. Delivery is best effort, as for datagrams: if a
piece is lost the frame is lost, and the protocols above repeat it. Pieces may come in any order and more than once.

Pieces are not trusted. Sizes are checked before anything is kept. Frames that are being joined are bounded in number
(in all, and for each sender), in bytes and in time; the oldest is dropped first. The layer that seals frames is above
this one, so a frame made of an attacker's pieces is refused as a whole.

``fragment(path_bytes=1472)`` says that the path is shorter than the engine believes; batches keep to it as well.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..core.errors import BadStack, MalformedFrame
from ..core.frame import Frame, Header, Number
from ..core.limits import (
    CUT_BYTES_MAX,
    CUT_FRAMES_MAX,
    CUT_FRAMES_PER_SENDER_MAX,
    CUT_S_MAX,
    FRAME_BYTES_MAX,
    PATH_BYTES_UNKNOWN,
)
from ..core.ports import Engine, Ports
from ..stack.events import Event, TooLong
from ..stack.layer import Layer

PIECE_OVERHEAD_BYTES = 96
"""Bytes that a piece's own frame adds, rounded up."""
PATH_BYTES_MIN = 512
PIECE_BYTES_MIN = PATH_BYTES_MIN - PIECE_OVERHEAD_BYTES
"""The least size of a piece that is not the last of its frame. The bound on kept bytes would not hold for very many
tiny pieces, which need more memory than their bytes."""
PIECES_MAX = FRAME_BYTES_MAX // PIECE_BYTES_MIN + 1

_decode_bodies = msgspec.msgpack.Decoder(tuple[bytes]).decode


class Cut(Header, tag=15):
    """One piece of an encoded frame, which is identified by (sender, number)."""

    number: Number
    index: Annotated[int, msgspec.Meta(ge=0, lt=PIECES_MAX)]
    total: Annotated[int, msgspec.Meta(ge=2, le=PIECES_MAX)]


class Partial:
    """A frame of which some pieces are there."""

    __slots__ = ("pieces", "since", "size", "total")

    def __init__(self, total: int, since: float) -> None:
        self.total = total
        self.since = since
        self.size = 0
        self.pieces: dict[int, bytes] = {}

    def joined(self) -> bytes:
        return b"".join(self.pieces[index] for index in range(self.total))


class Fragment(Layer):
    """cuts frames that are longer than the path"""

    name = "fragment"
    requires = frozenset({"datagrams"})
    provides = frozenset({"cutting"})
    headers = (Cut,)
    selective = True

    def __init__(self, path_bytes: int = 0) -> None:
        if path_bytes and path_bytes < PATH_BYTES_MIN:
            raise BadStack(f"fragment(path_bytes={path_bytes!r}) is too short: use at least {PATH_BYTES_MIN}")
        self._path_bytes = path_bytes
        self._number = 0
        self._partial: dict[tuple[int, int], Partial] = {}
        self._bytes = 0
        self.cut = 0
        self.joined = 0
        self.lost = 0
        self.refused = 0

    def options(self) -> dict[str, Any]:
        return {"path_bytes": self._path_bytes} if self._path_bytes else {}

    def wrap_ports(self, ports: Ports) -> Ports:
        if not self._path_bytes:
            return ports
        engine: Any = ShortPath(ports.engine, self._path_bytes)
        return msgspec.structs.replace(ports, engine=engine)

    # Cutting

    def event_up(self, event: Event) -> None:
        if isinstance(event, TooLong):
            self._cut(event)
        else:
            self.tell_up(event)

    def _cut(self, event: TooLong) -> None:
        data = event.datagram
        if len(data) > FRAME_BYTES_MAX:
            self.refused += 1
            return
        step = max(self.ports.engine.path_bytes or PATH_BYTES_UNKNOWN, PATH_BYTES_MIN) - PIECE_OVERHEAD_BYTES
        total = -(-len(data) // step)
        if total < 2:  # it fits a path of the least length that there is
            return
        self._number += 1
        self.cut += 1
        event.into.extend(
            Frame(
                sender=self.node.me,
                to=event.to,
                headers=[Cut(self._number, index, total)],
                bodies=[data[index * step : (index + 1) * step]],
            )
            for index in range(total)
        )

    # Putting together

    def up(self, frame: Frame) -> None:
        header = frame.headers[-1] if frame.headers else None
        if not isinstance(header, Cut):
            self.pass_up(frame)
            return
        whole = self._take(frame, header)
        if whole is None:
            return
        try:
            inner = self.node.codec.decode(whole)
        except MalformedFrame:
            self.refused += 1
            return
        nested = bool(inner.headers) and isinstance(inner.headers[-1], Cut)
        if nested or inner.sender != frame.sender or inner.to != frame.to:
            self.refused += 1
            return
        self.joined += 1
        self.pass_up(inner)

    def _take(self, frame: Frame, cut: Cut) -> bytes | None:
        """The whole frame's bytes, if this was the piece that was missing."""
        try:
            (piece,) = _decode_bodies(frame.bodies)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.refused += 1
            return None
        key = (frame.sender, cut.number)
        partial = self._partial.get(key)
        size = len(piece) + (partial.size if partial is not None else 0)
        tiny = cut.index < cut.total - 1 and len(piece) < PIECE_BYTES_MIN
        unlike = partial is not None and partial.total != cut.total
        if cut.index >= cut.total or size > FRAME_BYTES_MAX or tiny or unlike:
            self.refused += 1
            return None
        if partial is None:
            partial = self._begin(key, cut.total)
        if cut.index in partial.pieces:
            return None
        partial.pieces[cut.index] = piece
        partial.size += len(piece)
        self._bytes += len(piece)
        if len(partial.pieces) == cut.total:
            self._forget(key)
            return partial.joined()
        while self._bytes > CUT_BYTES_MAX:
            self._lose(next(iter(self._partial)))
        return None

    def _begin(self, key: tuple[int, int], total: int) -> Partial:
        now = self.ports.clock.now()
        for old in [old for old, partial in self._partial.items() if now - partial.since > CUT_S_MAX]:
            self._lose(old)
        own = [old for old in self._partial if old[0] == key[0]]
        if len(own) >= CUT_FRAMES_PER_SENDER_MAX:
            self._lose(own[0])
        elif len(self._partial) >= CUT_FRAMES_MAX:
            self._lose(next(iter(self._partial)))
        partial = self._partial[key] = Partial(total, now)
        return partial

    def _forget(self, key: tuple[int, int]) -> None:
        self._bytes -= self._partial.pop(key).size

    def _lose(self, key: tuple[int, int]) -> None:
        self._forget(key)
        self.lost += 1

    def stats(self) -> dict[str, Any]:
        return {
            "cut": self.cut,
            "joined": self.joined,
            "lost": self.lost,
            "refused": self.refused,
            "partial": len(self._partial),
        }

    def validate(self) -> None:
        assert len(self._partial) <= CUT_FRAMES_MAX
        assert self._bytes == sum(partial.size for partial in self._partial.values()) <= CUT_BYTES_MAX
        for partial in self._partial.values():
            assert 0 < len(partial.pieces) < partial.total
            assert partial.size == sum(map(len, partial.pieces.values()))


class ShortPath:
    """An engine whose path is shorter than it knows."""

    def __init__(self, engine: Engine, path_bytes: int) -> None:
        self._engine = engine
        self._most = path_bytes

    @property
    def path_bytes(self) -> int:
        return min(self._most, self._engine.path_bytes)

    @property
    def long_bytes(self) -> int:
        return self.path_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
