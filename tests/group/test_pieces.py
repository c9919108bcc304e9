"""Messages larger than a frame: whatever comes between their pieces, they arrive whole, once, in their place."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.core import limits
from pluribus.core.frame import Frame, Parents, Piece
from pluribus.core.ids import ALL, MemberId, MessageId
from pluribus.group import pieces as pieces_module
from pluribus.group.channel import Channel, Numbers
from pluribus.group.outgoing import Outgoing
from pluribus.group.pieces import Large, Pieces, piece_of
from pluribus.stack.events import Consumed, Event
from pluribus.wire.bodies import BYTES, DATA, TEXT, encode_body
from pluribus.wire.codec import Codec

CODEC = Codec("demo", (Piece, Parents))
PATH = 1_472
ME, OTHER = 7, 8


class Sender:
    """A stream whose frames are kept, as they are on the wire."""

    def __init__(self, path_bytes: int = PATH, to: int = ALL) -> None:
        self.frames: list[Frame] = []
        self.out = Outgoing(MemberId(ME), 9, to, 0, path_bytes, self._passed)

    def _passed(self, frame: Frame) -> None:
        data = CODEC.encode(frame)
        assert len(data) <= self.out.longest + limits.FRAME_OVERHEAD_BYTES
        self.frames.append(CODEC.decode(data))

    def small(self, body: bytes, parent: MessageId | None = None) -> int:
        return self.out.add(BYTES, body, parent)

    def begin(self, body: object, parent: MessageId | None = None) -> Large:
        kind, encoded = encode_body(body)
        large = Large(kind, encoded, parent)
        assert large.admitted(self.out, 0)
        return large

    def all_of(self, large: Large, restarts: int = 0) -> int:
        while large.number is None:
            large.send_some(restarts)
        large.end()
        return large.number


class Receiver:
    """A channel that reads everything at once."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.channel = Channel("x", 9, MemberId(OTHER), PATH, lambda frame: None, self.told.append, Numbers())
        self.channel.members_changed((ME, OTHER), {}, agreed=True)
        self.messages: list[tuple[int, object, MessageId | None]] = []

    def take(self, frames: list[Frame]) -> None:
        for frame in frames:
            self.channel.arrived(frame.copy())
            while self.channel.inbox:
                self.messages += [(message.id[1], message.body, message.parent) for message in self.channel.take()]


@pytest.mark.parametrize("size", [1_000, 10_000, 300_000, 5_000_000])
@pytest.mark.parametrize("path_bytes", [PATH, limits.PATH_BYTES_UNKNOWN, limits.PATH_BYTES_LOOPBACK])
def test_a_body_of_any_size_arrives_as_it_was(size: int, path_bytes: int):
    sender, receiver = Sender(path_bytes), Receiver()
    body = Random(size).randbytes(size)
    number = sender.all_of(sender.begin(body))
    receiver.take(sender.frames)
    assert receiver.messages == [(number, body, None)]
    assert number == sender.frames[-1].first == len(sender.frames) - 1
    assert not receiver.channel.pieces


@pytest.mark.parametrize("body", ["ä" * 5_000, {"a": list(range(5_000))}], ids=["text", "data"])
def test_every_kind_of_body_can_be_large(body: object):
    sender, receiver = Sender(), Receiver()
    number = sender.all_of(sender.begin(body, parent=(5, 6)))
    receiver.take(sender.frames)
    assert receiver.messages == [(number, body, (5, 6))]
    parents = [header for frame in sender.frames for header in frame.headers if isinstance(header, Parents)]
    assert len(parents) == 1, "the parent stands on the last piece alone"


@settings(max_examples=100)
@given(st.lists(st.sampled_from(["small", "begin", "some", "close", "join", "give up"]), max_size=80), st.integers(0))
def test_any_interleaving_against_an_oracle(steps: list[str], seed: int):
    """The oracle: messages in the order of their numbers, each with its body, none that was given up."""
    chance = Random(seed)
    sender, receiver = Sender(), Receiver()
    under_way: list[tuple[Large, bytes]] = []
    expected: dict[int, bytes] = {}
    restarts = 0

    def flush() -> None:
        receiver.take(sender.frames)
        sender.frames.clear()

    def go_on(large: Large, body: bytes) -> None:
        large.send_some(restarts)
        if large.number is not None:
            expected[large.number] = body
            assert not large.end()
            under_way.remove((large, body))

    for step in steps:
        if step == "small":
            body = chance.randbytes(chance.randrange(50))
            expected[sender.small(body)] = body
        elif step == "begin":
            body = chance.randbytes(chance.randrange(1_000, 200_000))
            under_way.append((sender.begin(body), body))
        elif step == "some" and under_way:
            go_on(*chance.choice(under_way))
        elif step == "give up" and under_way:
            under_way.pop(chance.randrange(len(under_way)))[0].end()
        elif step == "join":  # a view change: everything before is delivered before
            sender.out.close()
            flush()
            restarts += 1
            receiver.channel.members_changed((ME, OTHER, 100 + restarts), {}, agreed=True)
            assert not receiver.channel.pieces
        else:
            sender.out.close()
    while under_way:
        go_on(*under_way[0])
    sender.out.close()
    flush()
    assert [(number, body) for number, body, _ in receiver.messages] == sorted(expected.items())
    assert not receiver.channel.pieces and receiver.channel.pieces.refused == 0
    assert sender.out.large == sender.out.large_bytes == 0
    numbers = [frame.first + place for frame in sender.frames for place in range(frame.count)]
    assert numbers == sorted(numbers)


def test_pieces_wait_for_room_and_what_gathered_goes_before():
    sender = Sender()
    large = sender.begin(bytes(100_000))
    sender.small(b"before")
    sender.out.granted(2_500)
    sent: list[int] = []
    real = sender.out._pass_down

    def passed(frame: Frame) -> None:
        real(frame)
        sent.append(frame.size)
        sender.out.granted(2_500 - sum(sent))

    sender.out._pass_down = passed
    large.send_some(0)
    assert piece_of(sender.frames[0]) is None and all(map(piece_of, sender.frames[1:]))
    assert sender.out.room <= 0 and large.number is None
    before = len(sender.frames)
    large.send_some(0)
    assert len(sender.frames) == before, "a closed window takes nothing"


def test_on_a_short_path_several_pieces_leave_together():
    sender = Sender()
    large = sender.begin(bytes(500_000))
    large.send_some(0)
    assert 40 < len(sender.frames) < 100, "so that the kernel can segment them"
    wide = Sender(limits.PATH_BYTES_LOOPBACK)
    wide.begin(bytes(500_000)).send_some(0)
    assert len(wide.frames) <= 2, "but not so many that others have to wait"


def test_who_comes_in_the_middle_gets_nothing_of_it():
    sender = Sender()
    sender.all_of(sender.begin(bytes(10_000)))
    sender.small(b"after")
    sender.out.close()
    receiver = Receiver()
    receiver.take(sender.frames[3:])
    assert [body for _, body, _ in receiver.messages] == [b"after"]
    assert receiver.channel.pieces.strays > 0 and not receiver.channel.pieces


def test_when_somebody_joins_everybody_begins_again():
    sender, old, new = Sender(), Receiver(), Receiver()
    body = Random(1).randbytes(200_000)
    large = sender.begin(body)
    large.send_some(0)
    old.take(sender.frames)
    sender.frames.clear()
    for receiver in (old, new):
        receiver.channel.members_changed((ME, OTHER, 11), {}, agreed=True)
    number = sender.all_of(large, restarts=1)
    for receiver in (old, new):
        receiver.take(sender.frames)
        assert receiver.messages == [(number, body, None)]


def test_when_somebody_only_leaves_nothing_begins_again():
    sender, receiver = Sender(), Receiver()
    receiver.channel.members_changed((ME, OTHER, 11), {}, agreed=True)
    restarts = receiver.channel.restarts
    large = sender.begin(bytes(200_000))
    large.send_some(restarts)
    receiver.take(sender.frames)
    sender.frames.clear()
    receiver.channel.members_changed((ME, OTHER), {}, agreed=True)
    assert receiver.channel.restarts == restarts and len(receiver.channel.pieces) == 1


def test_what_a_sender_that_is_gone_had_begun_is_dropped():
    sender, receiver = Sender(), Receiver()
    sender.begin(bytes(200_000)).send_some(0)
    receiver.take(sender.frames)
    assert receiver.channel.pieces.size > 0
    receiver.channel.members_changed((OTHER,), {}, agreed=True)
    assert receiver.channel.pieces.size == 0


def test_a_stream_to_one_member_goes_on_when_somebody_joins():
    sender, receiver = Sender(to=OTHER), Receiver()
    large = sender.begin(bytes(200_000))
    large.send_some(0)
    receiver.take(sender.frames)
    sender.frames.clear()
    receiver.channel.members_changed((ME, OTHER, 11), {}, agreed=True)
    assert len(receiver.channel.pieces) == 1


def test_without_agreed_views_a_newcomer_disturbs_nobody():
    sender, receiver = Sender(), Receiver()
    large = sender.begin(bytes(200_000))
    large.send_some(0)
    receiver.take(sender.frames)
    sender.frames.clear()
    restarts = receiver.channel.restarts
    receiver.channel.members_changed((ME, OTHER, 11), {}, agreed=False)
    number = sender.all_of(large, restarts=0)
    receiver.take(sender.frames)
    assert receiver.channel.restarts == restarts
    assert [number_ for number_, _, _ in receiver.messages] == [number]


# Bounds


def test_a_stream_admits_so_much_and_no_more():
    sender = Sender()
    big = bytes(limits.BODY_BYTES_MAX // 2)
    first, second = sender.begin(big), sender.begin(big)
    third = Large(BYTES, bytes(1_000), None)
    assert not third.admitted(sender.out, 0)
    assert not first.end(), "nothing of it was sent, so nobody must be told"
    assert third.admitted(sender.out, 0)
    second.end()
    third.end()
    assert sender.out.large == sender.out.large_bytes == 0
    many = [sender.begin(bytes(1_000)) for _ in range(limits.LARGE_PER_STREAM_MAX)]
    assert not Large(BYTES, bytes(1_000), None).admitted(sender.out, 0)
    assert len(many) == sender.out.large


def piece(number: int, message: int, index: int, total: int, body: bytes = b"x", kind: int = BYTES) -> Frame:
    header = Piece(message, index, total, kind)
    frame = Frame(sender=ME, group=9, first=number, count=1, size=len(body), headers=[header], bodies=[body])
    return CODEC.decode(CODEC.encode(frame))


def test_a_receiver_refuses_more_than_a_stream_may_have(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pieces_module, "BODY_BYTES_MAX", 10_000)
    receiver = Receiver()
    for index in range(20):
        receiver.take([piece(index, 0, index, 1_000, bytes(1_000))])
        assert receiver.channel.pieces.size <= 10_000
    assert receiver.channel.pieces.refused == 1
    for message in range(100, 300):
        receiver.take([piece(message, message, 0, 3)])
    assert len(receiver.channel.pieces) <= limits.LARGE_PER_STREAM_MAX


def test_messages_that_wait_for_their_last_piece_alone_are_not_refused(monkeypatch: pytest.MonkeyPatch):
    """In semantic order that piece may wait for the message that it answers, and the sender has long gone on."""
    monkeypatch.setattr(pieces_module, "LARGE_WAITING_MAX", 200)
    receiver = Receiver()
    waiting = range(0, 2_000, 10)
    assert len(waiting) == 200 > limits.LARGE_PER_STREAM_MAX
    for message in waiting:
        receiver.take([piece(message, message, 0, 2, b"%d " % message)])
    sender = Sender()
    sender.out.first = 5_000
    body = Random(1).randbytes(50_000)
    number = sender.all_of(sender.begin(body))
    receiver.take(sender.frames)
    assert receiver.messages == [(number, body, None)], "what is under way has its own places"
    for message in reversed(waiting):
        receiver.take([piece(message + 1, message, 1, 2, b"done")])
    assert receiver.messages[1:] == [(message + 1, b"%d done" % message, None) for message in reversed(waiting)]
    assert not receiver.channel.pieces and receiver.channel.pieces.size == receiver.channel.pieces.refused == 0
    for message in range(10_000, 10_300):
        receiver.take([piece(message, message, 0, 2)])
    assert len(receiver.channel.pieces) == 201 and receiver.channel.pieces.refused == 99, "bounded all the same"


@pytest.mark.parametrize(
    "frames",
    [
        [piece(0, 0, 0, 3), piece(1, 0, 2, 3)],
        [piece(0, 0, 0, 3), piece(1, 0, 1, 4)],
        [piece(0, 0, 0, 3), piece(1, 0, 1, 3, kind=TEXT)],
    ],
    ids=["a gap", "another total", "another kind"],
)
def test_pieces_that_do_not_fit_are_refused(frames: list[Frame]):
    receiver = Receiver()
    receiver.take(frames)
    assert receiver.channel.pieces.refused == 1 and not receiver.channel.pieces and not receiver.messages


def test_a_whole_that_is_not_what_it_says_is_counted_as_malformed():
    receiver = Receiver()
    receiver.take([piece(0, 0, 0, 2, b"\xc1\xc1", DATA), piece(1, 0, 1, 2, b"\xc1", DATA)])
    assert receiver.channel.malformed == 1 and not receiver.messages


def test_a_reader_that_does_not_read_keeps_the_window_closed():
    sender, receiver = Sender(), Receiver()
    sender.all_of(sender.begin(bytes(100_000)))
    for frame in sender.frames:
        receiver.channel.arrived(frame)
    assert len(receiver.channel.inbox) == len(sender.frames)
    assert receiver.told == [], "nothing is consumed before it is read"
    while receiver.channel.inbox:
        list(receiver.channel.take())
    receiver.channel.report_consumed()
    (consumed,) = receiver.told
    assert isinstance(consumed, Consumed)
    assert (consumed.frames, consumed.size) == (len(sender.frames), 100_000)


def test_pieces_of_nobody_are_nothing():
    assert piece_of(Frame(sender=1)) is None
    assert len(Pieces()) == Pieces().size == 0
