"""Fragment: frames longer than the path arrive whole or not at all; what is kept for that is bounded."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.core import limits
from pluribus.core.errors import BadStack
from pluribus.core.frame import Frame, Header
from pluribus.core.ids import ALL
from pluribus.layers import fragment as fragment_module
from pluribus.layers.fragment import PIECE_BYTES_MIN, Cut, Fragment
from pluribus.layers.transport import Transport
from pluribus.stack.layer import Layer
from tests.harness import Medium, Member

PATH = 1_472


class Words(Header, tag=99):
    number: int
    text: bytes


class Top(Layer):
    """keeps what arrives"""

    name = "top"
    headers = (Words,)

    def __init__(self) -> None:
        self.got: list[Frame] = []

    def up(self, frame: Frame) -> None:
        self.got.append(frame)


def member(medium: Medium, name: str, *, cuts: bool = True, path_bytes: int = PATH) -> Member:
    layers = [Transport(), *([Fragment()] if cuts else []), Top()]
    return Member(medium, name, layers=layers, path_bytes=path_bytes).start()


def pair() -> tuple[Medium, Member, Member]:
    medium = Medium()
    return medium, member(medium, "a"), member(medium, "b")


def words(number: int, size: int) -> Words:
    return Words(number, Random(number).randbytes(size))


def say(sender: Member, *said: Words, to: int = ALL) -> None:
    top = sender.layer(Top)
    sender.stack.run(lambda: [top.pass_down(Frame(sender=sender.me, to=to, headers=[word])) for word in said])


def heard(receiver: Member) -> list[Words]:
    return [frame.headers[-1] for frame in receiver.layer(Top).got]


@pytest.mark.parametrize("size", [0, 1_000, 1_400, 1_472, 2_000, 50_000, 1_000_000])
def test_a_frame_of_any_size_arrives_as_it_was(size: int):
    medium, a, b = pair()
    say(a, words(1, size))
    assert all(len(data) <= PATH for data, _, _ in medium.waiting)
    medium.deliver()
    assert heard(b) == [words(1, size)]
    assert b.layer(Top).got[0].sender == a.me
    b.stack.validate()


def test_a_frame_that_fits_is_not_touched():
    medium, a, b = pair()
    say(a, words(1, 1_000))
    medium.deliver()
    assert a.stats("fragment")["cut"] == a.stats("transport")["too_long"] == 0
    assert b.stats("fragment")["joined"] == 0


def test_a_frame_to_one_member_is_cut_too():
    medium, a, b = pair()
    say(b, words(0, 1))
    medium.deliver()  # now a knows where b is
    say(a, words(1, 9_000), to=b.me)
    medium.deliver()
    assert heard(b) == [words(1, 9_000)]


def test_without_the_layer_the_engine_gets_the_frame_as_it_is():
    medium = Medium()
    a = member(medium, "a", cuts=False, path_bytes=60_000)
    member(medium, "b", cuts=False)
    a.layer(Transport)._long_bytes = PATH
    say(a, words(1, 5_000))
    assert [len(data) > 5_000 for data, _, _ in medium.waiting] == [True]
    assert a.stats("transport")["too_long"] == 1


def test_a_frame_larger_than_any_limit_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fragment_module, "FRAME_BYTES_MAX", 10_000)
    medium = Medium()
    a = member(medium, "a")
    say(a, words(1, 20_000))  # nobody is there, so the engine has nothing to do
    assert a.stats("fragment") == {"cut": 0, "joined": 0, "lost": 0, "refused": 1, "partial": 0}


@settings(max_examples=60)
@given(
    sizes=st.lists(st.sampled_from([10, 1_400, 1_500, 4_000, 30_000]), min_size=1, max_size=8),
    seed=st.integers(0, 1 << 30),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    duplication=st.sampled_from([0.0, 0.5]),
)
def test_loss_duplication_and_reordering_against_an_oracle(
    sizes: list[int], seed: int, loss: float, duplication: float
):
    """What arrives is what had all its pieces delivered, whatever the order; twice only if all its pieces came twice,
    as a datagram may."""
    chance = Random(seed)
    medium, a, b = pair()
    said = [words(number, size) for number, size in enumerate(sizes)]
    copies: dict[int, list[int]] = {}
    under_way: list[bytes] = []
    for word in said:
        say(a, word)
        datagrams = [data for data, _, _ in medium.waiting]
        medium.waiting.clear()
        copies[word.number] = [
            0 if chance.random() < loss else 2 if chance.random() < duplication else 1 for _ in datagrams
        ]
        for data, times in zip(datagrams, copies[word.number], strict=True):
            under_way += [data] * times
    chance.shuffle(under_way)
    for data in under_way:
        b.engine.receive([(data, ("a", 0))])
        b.stack.validate()
    for word in said:
        times = heard(b).count(word)
        assert min(1, *copies[word.number]) <= times <= min(copies[word.number])


def test_a_piece_that_comes_again_after_the_frame_was_complete_brings_nothing():
    medium, a, b = pair()
    say(a, words(1, 5_000))
    pieces = [data for data, _, _ in medium.waiting]
    medium.deliver()
    b.engine.receive([(pieces[0], ("a", 0))])
    assert heard(b) == [words(1, 5_000)]
    assert b.stats("fragment")["partial"] == 1, "it looks like a new one, and is forgotten in time"
    medium.clock.advance(limits.CUT_S_MAX + 1)
    say(a, words(2, 5_000))
    medium.deliver()
    assert b.stats("fragment")["lost"] == 1 and b.stats("fragment")["partial"] == 0


FULL = bytes(PIECE_BYTES_MIN)


def piece(codec_of: Member, number: int, index: int = 0, total: int = 2, sender: int = 5, body: bytes = FULL) -> bytes:
    return codec_of.stack.node.codec.encode(Frame(sender=sender, headers=[Cut(number, index, total)], bodies=[body]))


def test_frames_that_never_become_whole_are_bounded():
    _, _, b = pair()
    for number in range(3 * limits.CUT_FRAMES_PER_SENDER_MAX):
        b.engine.receive([(piece(b, number), ("x", 1))])
        b.stack.validate()
    assert b.stats("fragment")["partial"] == limits.CUT_FRAMES_PER_SENDER_MAX
    for sender in range(10, 10 + 2 * limits.CUT_FRAMES_MAX):
        b.engine.receive([(piece(b, 1, sender=sender), ("x", 1))])
        b.stack.validate()
    assert b.stats("fragment")["partial"] == limits.CUT_FRAMES_MAX


def test_bytes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fragment_module, "CUT_BYTES_MAX", 50_000)
    _, _, b = pair()
    for number in range(30):
        for index in range(3):
            b.engine.receive([(piece(b, number, index, 100, sender=9 + number, body=bytes(1_400)), ("x", 1))])
            b.stack.validate()
    assert b.layer(Fragment)._bytes <= 50_000
    assert b.stats("fragment")["lost"] > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": 1, "index": 2, "total": 2},
        {"number": 1, "index": 0, "total": 2, "body": b"\xff" * 500},
        {"number": 2, "index": 0, "total": 3, "body": FULL[1:]},
    ],
    ids=["a place that is not there", "what was never a frame", "a piece that is too small to be one"],
)
def test_what_cannot_be_is_refused(wrong: dict[str, int]):
    _, _, b = pair()
    b.engine.receive([(piece(b, **wrong), ("x", 1))])
    b.engine.receive([(piece(b, 1, 1, 2), ("x", 1))])
    assert b.stats("fragment")["refused"] == 1
    assert not heard(b)
    assert b.stats("transport")["faulty"] == 0
    b.stack.validate()


def test_pieces_that_disagree_about_their_number_are_refused():
    _, _, b = pair()
    b.engine.receive([(piece(b, 1, 0, 2), ("x", 1)), (piece(b, 1, 1, 3), ("x", 1))])
    assert b.stats("fragment")["refused"] == 1


def test_a_frame_cannot_pretend_to_be_of_somebody_else_or_to_be_cut_twice():
    _, _, b = pair()
    codec = b.stack.node.codec
    padded = {"bodies": [FULL]}
    for inner in (Frame(sender=6, headers=[words(1, 10)], **padded), Frame(sender=5, headers=[Cut(1, 0, 2)], **padded)):
        data = codec.encode(inner)
        halves = (data[:PIECE_BYTES_MIN], data[PIECE_BYTES_MIN:])
        for index, half in enumerate(halves):
            b.engine.receive([(piece(b, 77, index, 2, body=half), ("x", 1))])
    assert b.stats("fragment")["refused"] == 2 and not heard(b)


def test_the_path_can_be_said_to_be_shorter():
    medium = Medium()
    stack = "transport | fragment(path_bytes=1000) | detector | reliable | membership | groups"
    a = Member(medium, "a", stack)
    assert a.stack.ports.engine.path_bytes == 1_000
    assert a.stack.ports.engine.address == ("a", 0)
    assert "fragment(path_bytes=1000)" in str(a.stack)
    with pytest.raises(BadStack, match="at least 512"):
        Fragment(path_bytes=100)


def test_a_view_with_a_thousand_groups_is_agreed_over_a_short_path():
    from pluribus.group.dispatch import Dispatch

    medium = Medium()
    stack = "transport | fragment | detector | reliable | membership | groups"
    members = [Member(medium, name, stack, path_bytes=PATH).start() for name in "abc"]
    medium.run(2)
    for one in members:
        for number in range(330):
            one.layer(Dispatch).join(f"the group {one.name} {number}")
        one.layer(Dispatch).join("common")
    medium.run(5)
    for one in members:
        channels = one.layer(Dispatch).channels.values()
        assert all(one.me in channel.view for channel in channels)
        common = next(channel for channel in channels if channel.name == "common")
        assert len(common.view) == 3
        one.stack.validate()
    assert sum(one.stats("fragment")["cut"] for one in members) > 0
