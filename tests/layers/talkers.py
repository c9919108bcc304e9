"""Members that talk through groups on the harness's medium, as the runtime would, without waiting."""

from collections.abc import Callable

from pluribus.core.frame import Frame, Message
from pluribus.core.ids import ALL
from pluribus.group.channel import Channel
from pluribus.group.dispatch import Dispatch
from pluribus.layers.presence import Bye, Hello, Refusal
from pluribus.layers.window import FRAME_CHARGE_BYTES, Window
from pluribus.wire.bodies import BYTES
from tests.harness import BEST_EFFORT, Medium, Member

GROUP = "x"


class Talker(Member):
    """A member of one group; ``send`` says whether the window admitted the message."""

    def __init__(self, medium: Medium, name: str, stack: str = BEST_EFFORT, *, own: bool = True, **engine: int) -> None:
        super().__init__(medium, name, stack, **engine)
        self.dispatch: Dispatch = self.layer(Dispatch)
        self.window: Window = self.layer(Window)
        self.start()
        self.got: list[Message] = []
        self.join(own=own)

    def join(self, *, own: bool = True) -> None:
        self.channel: Channel = self.dispatch.join(GROUP, own=own)

    def leave(self) -> None:
        self.dispatch.leave(self.channel)

    def send(self, body: bytes, to: int = ALL) -> int | None:
        """The message's number, or None: then it would have had to wait."""
        out = self.channel.outgoing(to)
        if not out.fits(BYTES, len(body)):
            self.dispatch.flush(self.channel)
            if not out.fits(BYTES, len(body)):
                return None
        if not out.pending:
            self.dispatch.opened(self.channel)
        return out.add(BYTES, body)

    def turn(self) -> None:
        """The loop's turn ends: batches close."""
        self.medium.clock.advance(0.0)

    def read(self, frames: int = 1 << 30) -> None:
        while self.channel.inbox and frames:
            frames -= 1
            self.got += self.channel.take()
            if self.channel.must_report:
                self.dispatch.consumed(self.channel)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.got]

    def unread_bytes(self, sender: int) -> int:
        return sum(frame.size + FRAME_CHARGE_BYTES for frame in self.channel.inbox if frame.sender == sender)


def met(medium: Medium, *talkers: Talker) -> None:
    medium.deliver()
    for talker in talkers:
        assert len(talker.channel.view) == len(talkers)


def is_presence(member: Member) -> Callable[[bytes], bool]:
    """Whether a datagram is of the presence layer: those a test delivers at once, so that members stay members."""

    def check(data: bytes) -> bool:
        frame: Frame = member.stack.node.codec.decode(data)
        return bool(frame.headers) and isinstance(frame.headers[-1], Hello | Bye | Refusal)

    return check
