"""Messages that are larger than a frame: cut into pieces by the sender, joined by the receivers.

Theory of operation
-------------------
A piece is a message of its stream like any other: numbered, repaired, ordered and charged to the window. So a large
message waits for room piece by piece, other messages of the same sender go between its pieces, and no layer below knows
of it. The message has the number of its last piece and is delivered with it; only that piece names the parent.

Pieces of one message come in order, because streams do. A piece that is out of place (this member joined in the middle)
belongs to a message that is not for this member.

*Views.* All members of a group that pass through a view together have the same pieces; new members have none. So when a
member joins, all others forget incomplete messages, and the sender begins them again in the new view: a message is
delivered by all members of a view or by none. When members only leave, only messages that they had begun are lost.

Bounded: a stream has at most ``LARGE_PER_STREAM_MAX`` such messages under way, of ``BODY_BYTES_MAX`` together. Senders
wait until a message is admitted, so receivers need not refuse any. In semantic order the last piece may wait below for
its parent long after the sender has gone on. Such messages, which lack only their last piece, do not count as under
way; ``LARGE_WAITING_MAX`` of them may wait. In the inbox, pieces wait as empty frames until the reader passes them, so
that a reader that does not read closes the window as usual.
"""

from __future__ import annotations

from ..core.frame import Frame, Parents, Piece
from ..core.ids import ALL, MessageId
from ..core.limits import BODY_BYTES_MAX, LARGE_PER_STREAM_MAX, LARGE_WAITING_MAX, PATH_BYTES_LOOPBACK
from ..wire.bodies import BYTES, Kind, decode_bodies, join_bodies
from .outgoing import Outgoing

Stream = tuple[int, int, int]
PIECE_OVERHEAD_BYTES = 64
"""Bytes of a piece's own header, without the name of its kind."""


class Large:
    """A large message that is being sent. ``number`` is its number once the last piece is sent."""

    __slots__ = ("_encoded", "_index", "_kind", "_message", "_out", "_parent", "_restarts", "number")

    def __init__(self, kind: Kind, encoded: bytes, parent: MessageId | None) -> None:
        self.number: int | None = None
        self._kind = kind
        self._encoded = encoded
        self._parent = parent
        self._out: Outgoing | None = None
        self._message = -1
        self._index = 0
        self._restarts = 0

    def admitted(self, out: Outgoing, restarts: int) -> bool:
        """Take a place in the stream, if there is one. In a stream that was replaced meanwhile we have none."""
        if self._out is out:
            return True
        self.end()
        if out.large and (out.large >= LARGE_PER_STREAM_MAX or out.large_bytes + len(self._encoded) > BODY_BYTES_MAX):
            return False
        out.large += 1
        out.large_bytes += len(self._encoded)
        self._out, self._message, self._index, self._restarts = out, -1, 0, restarts
        return True

    def send_some(self, restarts: int) -> None:
        """Send as many pieces as the window takes, but no more than fit a datagram or a segmented send."""
        out = self._out
        assert out is not None, "admitted before"
        if restarts != self._restarts:
            self._index, self._restarts = 0, restarts
        kind_bytes = len(self._kind.encode()) if isinstance(self._kind, str) else 0
        step = max(out.longest - PIECE_OVERHEAD_BYTES - kind_bytes, 1)
        total = -(-len(self._encoded) // step)
        out.close()
        if self._message < 0:
            self._message = out.first
        left = PATH_BYTES_LOOPBACK
        while self.number is None and left > 0 and out.room > 0:
            at = self._index * step
            body = self._encoded[at : at + step]
            self._index += 1
            last = self._index == total
            piece = Piece(self._message, self._index - 1, total, self._kind)
            number = out.send_piece(piece, body, self._parent if last else None)
            left -= len(body)
            if last:
                self.number = number

    def end(self) -> bool:
        """Give up the place in the stream; true if receivers must be told that no more pieces come."""
        out, self._out = self._out, None
        if out is None:
            return False
        out.large -= 1
        out.large_bytes -= len(self._encoded)
        if self.number is None and self._message >= 0:
            out.abandoned.append(self._message)
            return True
        return False


class Partial:
    """A message whose first pieces have come."""

    __slots__ = ("bodies", "kind", "size", "total")

    def __init__(self, total: int, kind: Kind) -> None:
        self.total = total
        self.kind = kind
        self.size = 0
        self.bodies: list[bytes] = []


class Begun:
    """The incomplete messages of one stream, by the number of their first piece, and the sums that bound them."""

    __slots__ = ("partials", "size", "under_way")

    def __init__(self) -> None:
        self.partials: dict[int, Partial] = {}
        self.size = 0
        self.under_way = 0
        """Messages that lack more than their last piece."""

    def begin(self, message: int, total: int, kind: Kind) -> None:
        self.drop(message)
        self.partials[message] = Partial(total, kind)
        self.under_way += total > 1

    def add(self, partial: Partial, body: bytes) -> None:
        partial.bodies.append(body)
        partial.size += len(body)
        self.size += len(body)
        self.under_way -= len(partial.bodies) == partial.total - 1

    def drop(self, message: int) -> None:
        partial = self.partials.pop(message, None)
        if partial is not None:
            self.size -= partial.size
            self.under_way -= len(partial.bodies) < partial.total - 1

    @property
    def full(self) -> bool:
        return self.under_way > LARGE_PER_STREAM_MAX or len(self.partials) - self.under_way > LARGE_WAITING_MAX


class Pieces:
    """The incomplete messages of one group."""

    def __init__(self) -> None:
        self._streams: dict[Stream, Begun] = {}
        self.refused = 0
        """Pieces over the bounds, or malformed ones."""
        self.strays = 0
        """Pieces of messages that began before this member was there."""

    def take(self, frame: Frame, piece: Piece) -> Frame:
        """The frame for the inbox in the place of this piece: the whole message, or an empty frame of the piece's
        size."""
        partial = self._add(frame, piece)
        if partial is None:
            return _weight(frame)
        self._streams[frame.stream].drop(piece.message)
        return _whole(frame, partial)

    def keep_only(self, members: tuple[int, ...], *, joined: bool) -> None:
        """The group has these members now. If one joined, messages to all are begun again."""
        for stream in [s for s in self._streams if s[0] not in members or (joined and s[2] == ALL)]:
            del self._streams[stream]

    def __len__(self) -> int:
        return sum(len(begun.partials) for begun in self._streams.values())

    @property
    def size(self) -> int:
        return sum(begun.size for begun in self._streams.values())

    def _add(self, frame: Frame, piece: Piece) -> Partial | None:
        """The message, if this was its last piece."""
        begun = self._streams.get(frame.stream)
        if begun is None:
            begun = self._streams[frame.stream] = Begun()
        if piece.total == 0:
            begun.drop(piece.message)
            return None
        if piece.index == 0:
            begun.begin(piece.message, piece.total, piece.kind)
        partial = begun.partials.get(piece.message)
        if partial is None:
            self.strays += 1
            return None
        body = self._checked(frame, piece, partial, begun)
        if body is None:
            begun.drop(piece.message)
            self.refused += 1
            return None
        begun.add(partial, body)
        return partial if len(partial.bodies) == partial.total else None

    @staticmethod
    def _checked(frame: Frame, piece: Piece, partial: Partial, begun: Begun) -> bytes | None:
        if (piece.index, piece.total, piece.kind) != (len(partial.bodies), partial.total, partial.kind):
            return None
        last = piece.index == piece.total - 1  # with it there is one less
        if frame.count != 1 or frame.kind != BYTES or (begun.full and not last):
            return None
        body = decode_bodies(BYTES, frame.bodies, 1)[0]
        fits = begun.size + len(body) <= BODY_BYTES_MAX
        return body if fits and isinstance(body, bytes) else None


def _weight(frame: Frame) -> Frame:
    """A frame without a message, with the size that the piece took from the window."""
    return Frame(sender=frame.sender, to=frame.to, group=frame.group, first=frame.first, size=frame.size, bodies=[])


def _whole(frame: Frame, partial: Partial) -> Frame:
    encoded = b"".join(partial.bodies)
    return Frame(
        sender=frame.sender,
        to=frame.to,
        group=frame.group,
        first=frame.first,
        count=1,
        size=frame.size,
        kind=partial.kind,
        headers=[header for header in frame.headers if type(header) is Parents],
        bodies=join_bodies(partial.kind, [encoded]),
    )


def piece_of(frame: Frame) -> Piece | None:
    """The header of a piece, if the frame is one."""
    return next((header for header in frame.headers if type(header) is Piece), None)
