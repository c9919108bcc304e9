"""Members with sealed frames on the harness's medium, and a way to see what crosses it."""

from collections.abc import Iterator

from pluribus.core.frame import Frame, Header
from pluribus.core.secret import Secret
from pluribus.group.channel import Channel
from pluribus.group.dispatch import Dispatch
from pluribus.layers.secure import Secure
from pluribus.layers.secure.headers import Sealed
from pluribus.layers.transport import Transport
from pluribus.runtime.group.secret import catalogue
from pluribus.stack.layer import Layer
from pluribus.stack.specification import build
from pluribus.wire.bodies import BYTES
from tests.harness import Medium, Member

SECRET = Secret("correct horse battery staple")
OTHER = Secret("another one, as long as the first")
VIEWS = "transport | secure | detector | reliable | membership | groups"


class Words(Header, tag=99):
    text: bytes


class Top(Layer):
    """keeps what arrives"""

    name = "top"
    headers = (Words,)

    def __init__(self) -> None:
        self.got: list[Frame] = []

    def up(self, frame: Frame) -> None:
        self.got.append(frame)

    @property
    def texts(self) -> list[bytes]:
        return [frame.headers[-1].text for frame in self.got]


class Bare(Member):
    """Transport, secure, and nothing above but a test."""

    def __init__(self, medium: Medium, name: str, secret: Secret = SECRET) -> None:
        super().__init__(medium, name, layers=[Transport(), Secure(secret), Top()])
        self.secure: Secure = self.layer(Secure)
        self.top: Top = self.layer(Top)
        self.start()

    def say(self, text: bytes, to: int = 0, **fields: int) -> None:
        frame = Frame(sender=self.me, to=to, headers=[Words(text)], **fields)  # type: ignore[arg-type]
        self.stack.run(lambda: self.top.pass_down(frame))


class Sealer(Member):
    """A member of agreed views, with sealed frames."""

    def __init__(self, medium: Medium, name: str, secret: Secret = SECRET, stack: str = VIEWS) -> None:
        super().__init__(medium, name, layers=build(stack, catalogue(secret)))
        self.dispatch: Dispatch = self.layer(Dispatch)
        self.secure: Secure = self.layer(Secure)
        self.start()
        self.channel: Channel = self.dispatch.join("the group")
        self.bodies: list[bytes] = []

    def send(self, body: bytes) -> None:
        self.channel.out.add(BYTES, body)
        self.dispatch.opened(self.channel)

    def read(self) -> list[bytes]:
        while self.channel.inbox:
            self.bodies += [message.body for message in self.channel.take()]
        self.dispatch.consumed(self.channel)
        return self.bodies


def sealed_frames(member: Member, datagrams: list[bytes]) -> Iterator[tuple[Frame, Sealed]]:
    for data in datagrams:
        frame = member.stack.node.codec.decode(data)
        if frame.headers and isinstance(frame.headers[-1], Sealed):
            yield frame, frame.headers[-1]


def acquainted(medium: Medium, *members: Bare) -> None:
    """Everybody has proven itself to everybody."""
    for member in members:
        member.say(b"hello")
    medium.deliver()
    for member in members:
        assert len(member.secure._peers) == len(members) - 1
        member.top.got.clear()


def recorded(medium: Medium) -> list[bytes]:
    """From now on, a copy of everything that crosses the medium."""
    copies: list[bytes] = []
    lose = medium.lose

    def watch(data: bytes, source: object, target: object) -> bool:
        copies.append(data)
        return lose(data, source, target)  # type: ignore[arg-type]

    medium.lose = watch
    return copies
