"""A channel: what the stack told it waits until the application takes it, and what was taken is reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.frame import Frame
from pluribus.core.ids import ALL, MemberId
from pluribus.group.channel import REPORT_BUSY_BYTES, REPORT_IDLE_BYTES, Channel, Numbers
from pluribus.stack.events import Consumed, Event
from pluribus.wire.bodies import BYTES, TEXT, encode_body, join_bodies

ME, OTHER = MemberId(1), MemberId(2)


def channel() -> tuple[Channel, list[Frame], list[Event]]:
    frames: list[Frame] = []
    events: list[Event] = []
    return Channel("x", 9, ME, 1_472, frames.append, events.append, Numbers()), frames, events


def frame_of(*bodies: bytes, sender: int = OTHER, first: int = 0, to: int = ALL, size: int | None = None) -> Frame:
    weight = sum(map(len, bodies)) if size is None else size
    return Frame(
        sender=int(sender), group=9, to=to, first=first, count=len(bodies), size=weight, kind=BYTES, bodies=list(bodies)
    )


def test_what_arrived_is_taken_frame_by_frame_with_identities():
    x, _, _ = channel()
    woken: list[int] = []
    x.on_arrival = lambda: woken.append(len(x.inbox))
    x.members_changed((ME, OTHER), {ME: "me", OTHER: "other"}, False)
    x.arrived(frame_of(b"a", b"b", first=5))
    x.arrived(frame_of(b"c", first=7))
    assert woken == [1, 2]
    messages = list(x.take())
    assert [(m.body, m.sender, m.id, m.parent) for m in messages] == [
        (b"a", OTHER, (OTHER, 5), None),
        (b"b", OTHER, (OTHER, 6), None),
    ]
    assert isinstance(messages[0].sender, MemberId) and isinstance(messages[0].id[0], MemberId)
    assert [m.id for m in x.take()] == [(OTHER, 7)]
    assert not x.inbox


def test_a_sender_who_left_meanwhile_is_still_named():
    x, _, _ = channel()
    x.arrived(frame_of(b"a", sender=99))
    (message,) = x.take()
    assert repr(message.sender) == repr(MemberId(99))


def test_bodies_that_do_not_decode_are_counted_and_count_as_consumed():
    x, _, events = channel()
    kind, text = encode_body("text")
    assert kind == TEXT
    joined = join_bodies(kind, [text])
    x.arrived(Frame(sender=2, group=9, count=2, size=5, kind=kind, bodies=joined))
    x.arrived(Frame(sender=2, group=9, count=1, size=5, kind=77, bodies=joined))
    assert list(x.take()) == list(x.take()) == []
    assert x.malformed == 2
    x.report_consumed()
    assert events == [Consumed(2, 9, ALL, 2, 10)]


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([ALL, 1]), st.integers(0, 500)), max_size=50))
def test_what_is_reported_is_what_was_taken_by_stream(arrived: list[tuple[int, int, int]]):
    x, _, events = channel()
    expected: dict[tuple[int, int, int], list[int]] = {}
    for sender, to, size in arrived:
        x.arrived(frame_of(b"x", sender=sender, to=to, size=size))
        taken = expected.setdefault((sender, 9, to), [0, 0])
        taken[0] += 1
        taken[1] += size
    while x.inbox:
        list(x.take())
        if len(x.inbox) % 3 == 0:
            x.report_consumed()
    x.report_consumed()
    found: dict[tuple[int, int, int], list[int]] = {}
    for event in events:
        assert isinstance(event, Consumed)
        taken = found.setdefault((event.sender, event.group, event.to), [0, 0])
        taken[0] += event.frames
        taken[1] += event.size
    assert found == expected
    count = len(events)
    x.report_consumed()
    assert len(events) == count, "nothing is reported twice"


def test_a_reader_that_never_pauses_reports_now_and_then_and_one_that_caught_up_soon():
    x, _, _ = channel()
    assert not x.must_report
    for _ in range(1_000):
        x.arrived(frame_of(bytes(1_000)))
    taken = 0
    while not x.must_report:
        list(x.take())
        taken += 1_000
    assert REPORT_BUSY_BYTES / 2 < taken <= REPORT_BUSY_BYTES
    x.report_consumed()
    assert not x.must_report
    x.inbox.clear()
    taken = 0
    while not x.must_report:
        x.arrived(frame_of(bytes(1_000)))
        list(x.take())
        taken += 1_000
    assert taken <= REPORT_IDLE_BYTES


def test_views_count_up_and_name_everybody():
    x, _, _ = channel()
    seen: list[int] = []
    rooms: list[bool] = []
    x.on_view = lambda view: seen.append(view.number)
    x.on_room = lambda: rooms.append(True)
    x.members_changed((ME, OTHER), {ME: "me", OTHER: "other"}, False)
    x.members_changed((ME,), {ME: "me"}, True)
    assert seen == [1, 2]
    assert x.view.members == (ME,) and x.view.names == {ME: "me"} and x.view.agreed
    assert len(rooms) == 2, "whoever waits to send looks again: a slow receiver may have left"


def test_streams_to_one_member_end_when_it_leaves():
    x, frames, _ = channel()
    x.members_changed((ME, OTHER), {ME: "me", OTHER: "other"}, False)
    before = x.outgoing(OTHER)
    assert x.outgoing(OTHER) is before and x.outgoing(ALL) is x.out
    first = before.add(BYTES, b"x")
    x.close_batches()
    x.members_changed((ME,), {ME: "me"}, False)
    x.members_changed((ME, OTHER), {ME: "me", OTHER: "other"}, False)
    after = x.outgoing(OTHER)
    assert after is not before
    assert after.add(BYTES, b"y") != first, "identities are not used twice"
    x.close_batches()
    assert [frame.bodies for frame in frames] == [[b"x"], [b"y"]]
    x.validate()


def test_credit_wakes_those_who_wait_for_room():
    x, _, _ = channel()
    rooms: list[int] = []
    x.on_room = lambda: rooms.append(x.out.room)
    x.credited(ALL, 0)
    assert rooms == [] and not x.out.fits(BYTES, 1)
    x.credited(ALL, 500)
    assert rooms == [500]


@pytest.mark.parametrize("streams", [1, 5_000])
def test_numbers_of_streams_to_one_member_never_meet(streams: int):
    numbers = Numbers()
    starts = [numbers.direct_range() for _ in range(streams)]
    assert len(set(starts)) == streams
    assert min(starts) >= 1 << 40 and max(starts) < 1 << 62
