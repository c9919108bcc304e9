"""The two shapes in which messages move: ``Message`` at the ends, ``Frame`` everywhere between.

A frame is one batch: messages of one sender, one stream and one kind of body behind one header. Layers never look into
the bodies, which are decoded once, for the receiving application. So the cost of a layer is paid once a frame.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from .errors import BadInput
from .ids import ALL, MessageId
from .limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX, HEADERS_PER_FRAME_MAX, NAME_CHARS_MAX, VIEW_MEMBERS_MAX

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""An identity, a sequence number or a count. It is bounded, so that arithmetic on it stays cheap."""

Position = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""A place in a stream, in messages or in bytes: half of ``Number``, so that a place plus a length still travels."""

NO_BODIES = msgspec.Raw(b"\x90")  # an empty msgpack array


class Message(msgspec.Struct, gc=False):
    """What the application gets. One frame makes hundreds of messages, so a message holds nothing that would have to be
    computed for each."""

    body: Any
    sender: int
    id: MessageId
    parent: MessageId | None = None
    orphan: bool = False
    """In semantic order: the message that this one answers was lost, or did not come in time."""

    asks: ClassVar[bool] = False
    """Whether its sender awaits an answer; see ``reply``."""

    def reply(self, body: Any) -> Any:
        """Answer this message, if it asks; ``await`` the result."""
        raise BadInput("this message asks nothing: look at m.asks before m.reply, or send a message of your own")


class Header(msgspec.Struct, array_like=True):
    """A layer's own words on a frame. Each subclass has an integer ``tag``, unique in a stack.

    New optional fields go at the end: older minors skip them, newer ones take the default.
    """


class Parents(Header, tag=5):
    """Which message each message of the batch answers, if any; there when at least one does."""

    of: Annotated[list[tuple[Number, Position] | None], msgspec.Meta(max_length=BATCH_MESSAGES_MAX)]
    orphans: Annotated[list[Number], msgspec.Meta(max_length=BATCH_MESSAGES_MAX)] = []
    """Places of orphans in the batch: told by the semantic order to the same member's group room, empty on the wire."""


class Ahead(Header, tag=4):
    """On a frame on its way up, in a group whose order is made by a layer above (``AnyOrder``): earlier frames of the
    stream are missing. Only that layer reads this header."""

    floor: Position
    """No message of the stream below this number will come any more."""


class Piece(Header, tag=6):
    """On a frame with one piece of a message that is larger than a frame. The message has the number of its last piece.
    ``message`` is the number of its first piece when it was first sent, and tells it from other messages under way."""

    message: Position
    index: Position
    """Counted from 0. Piece 0 begins the message anew: pieces that came before are forgotten."""
    total: Annotated[int, msgspec.Meta(ge=0, le=BODY_BYTES_MAX)]
    """How many pieces there are; 0: no more will come, and the message is given up."""
    kind: Number | Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
    """Of the whole message; the piece itself is bytes."""


class Relayed(Header, tag=90):
    """On a frame that a member forwards for a sender outside of the group: whose messages these are."""

    sender: Number
    first: Position
    """The sender's own number of the first of them."""
    begins: Position
    """The number of its first message in this view of the group; messages before it were settled in earlier views."""


class Standing(Header, tag=91):
    """On a frame without a message, which every member of an open group sends when a view of the group begins: for each
    sender from outside, the number of the next message that this member expects."""

    places: Annotated[list[tuple[Number, Position]], msgspec.Meta(max_length=VIEW_MEMBERS_MAX)]


class Refused(Header, tag=7):
    """The receiver's frames are not accepted here, and why. Every stack understands this word, and sends it in
    clear."""

    reason: Number


class Frame(msgspec.Struct, array_like=True, kw_only=True):
    """A batch on its way, or, with ``count`` 0, a layer's control message.

    ``headers`` is a stack: on the way down each layer appends its header, on the way up each layer pops it. ``bodies``
    is an encoded msgpack array, or a list of bytes that the codec will encode as an array. ``size`` is the size of the
    bodies as the sender counted them; windows are counted in it. ``version`` and ``bus`` belong to the codec.
    """

    version: Number = 0
    bus: Number = 0
    sender: Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
    to: Number = ALL
    group: Number = 0
    first: Position = 0
    count: Annotated[int, msgspec.Meta(ge=0, le=BATCH_MESSAGES_MAX)] = 0
    size: Number = 0
    kind: Number | Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = 0
    headers: Annotated[list[Any], msgspec.Meta(max_length=HEADERS_PER_FRAME_MAX)] = []
    bodies: Any = NO_BODIES

    def copy(self) -> Frame:
        """The same frame with a header stack of its own, for a layer that keeps it to send it again."""
        return Frame(
            sender=self.sender,
            to=self.to,
            group=self.group,
            first=self.first,
            count=self.count,
            size=self.size,
            kind=self.kind,
            headers=self.headers.copy(),
            bodies=self.bodies,
        )

    @property
    def stream(self) -> tuple[int, int, int]:
        """Messages are numbered within (sender, group, destination)."""
        return (self.sender, self.group, self.to)
