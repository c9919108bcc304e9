"""Frames: a copy shares what is never changed and owns what is."""

from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.frame import Frame, Header
from pluribus.core.view import View


class Note(Header, tag=99):
    text: str


def test_a_copy_has_a_header_stack_of_its_own_and_shares_the_bodies():
    bodies = [b"one", b"two"]
    frame = Frame(sender=1, to=2, group=3, first=4, count=2, size=6, kind="Tick", headers=[Note("a")], bodies=bodies)
    copy = frame.copy()
    copy.headers.append(Note("b"))
    assert frame.headers == [Note("a")]
    assert copy.bodies is frame.bodies
    copy.headers.pop()
    assert copy == frame


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_copy_has_every_field_but_those_of_the_codec(sender, to, group, first, count, size):
    frame = Frame(version=16, bus=5, sender=sender, to=to, group=group, first=first, count=count, size=size, kind=1)
    copy = frame.copy()
    for field in Frame.__struct_fields__:
        if field not in ("version", "bus"):
            assert getattr(copy, field) == getattr(frame, field), field


def test_two_frames_never_share_a_default_header_stack():
    one, other = Frame(sender=1), Frame(sender=1)
    one.headers.append(Note("mine"))
    assert other.headers == []


def test_a_stream_is_sender_group_and_destination():
    assert Frame(sender=1, group=2, to=3).stream == (1, 2, 3)


def test_a_view_counts_and_contains_its_members():
    view = View(3, (10, 20), {10: "a", 20: "b"})
    assert len(view) == 2
    assert 10 in view and 30 not in view
