"""Fault layers: they do what their name says, as often as they say, and count it."""

import pytest

from pluribus.core.errors import BadStack
from pluribus.core.frame import Frame
from pluribus.layers import CATALOGUE
from pluribus.layers.transport import Transport
from pluribus.stack.layer import Layer
from pluribus.stack.specification import build
from tests.harness import Medium, Member

FRAMES = 1_000


class Top(Layer):
    name = "top"

    def __init__(self) -> None:
        self.got: list[int] = []

    def up(self, frame: Frame) -> None:
        self.got.append(frame.first)
        frame.headers.clear()  # a copy must not share the list


def struck(fault: str) -> tuple[list[int], int, Medium]:
    """What arrives of a thousand numbered frames above one fault layer, and how often it struck."""
    medium = Medium()
    top = Top()
    (layer,) = build(fault, CATALOGUE)
    member = Member(medium, "a", layers=[Transport(), layer, top]).start()
    codec = member.stack.node.codec
    for number in range(FRAMES):
        data = codec.encode(Frame(sender=5, first=number, count=1, size=1, bodies=[b"x"]))
        member.engine.receive([(data, ("x", 1))])
    assert member.stats("transport")["faulty"] == 0
    return top.got, member.stats(layer.name)["struck"], medium


@pytest.mark.parametrize("name", ["drop", "duplicate", "delay", "reorder", "corrupt"])
def test_a_fault_of_no_probability_never_strikes(name: str):
    got, count, _ = struck(f"{name}(p=0)")
    assert got == list(range(FRAMES))
    assert count == 0


def test_drop_loses_a_share():
    got, count, _ = struck("drop(p=0.3)")
    assert len(got) == FRAMES - count
    assert got == sorted(set(got))
    assert 200 < count < 400
    assert struck("drop(p=1)")[:2] == ([], FRAMES)


def test_duplicate_delivers_a_share_twice_in_a_row():
    got, count, _ = struck("duplicate(p=0.3)")
    assert sorted(set(got)) == list(range(FRAMES))
    assert len(got) == FRAMES + count
    assert got == sorted(got)
    assert 200 < count < 400


def test_delay_delivers_a_share_later_and_all_in_the_end():
    got, count, medium = struck("delay(p=0.3, seconds=2.0)")
    at_once = list(got)
    assert len(at_once) == FRAMES - count
    medium.clock.advance(2.0)
    assert sorted(got) == list(range(FRAMES))
    assert got != sorted(got)
    assert 200 < count < 400


def test_reorder_swaps_neighbours_and_loses_none_but_perhaps_holds_the_last():
    got, count, _ = struck("reorder(p=0.3)")
    assert FRAMES - 1 <= len(got) <= FRAMES
    assert len(set(got)) == len(got)
    assert got != sorted(got)
    assert all(abs(number - place) <= 2 for place, number in enumerate(got))
    assert 200 < count < 400


def test_corrupt_changes_or_loses_what_it_strikes():
    got, count, _ = struck("corrupt(p=0.5)")
    assert count > 300
    assert len(got) < FRAMES, "some no longer decode"
    assert set(range(FRAMES)) - set(got), "some arrive as something else, or not at all"


@pytest.mark.parametrize("wrong", ["drop(p=1.5)", "drop(p=-0.1)", "drop(p='often')", "delay(seconds=-1)"])
def test_what_is_no_probability_and_no_time_is_refused(wrong: str):
    with pytest.raises(BadStack):
        build(wrong, CATALOGUE)
