"""Semantic order: what it holds back, what it lets go and when, and how it accounts for batches that it took apart."""

import msgspec
import pytest

from pluribus.core.frame import Ahead, Frame, Parents
from pluribus.core.ids import ALL
from pluribus.layers.semantic import Semantic, forest, layer
from pluribus.layers.semantic.layer import PATIENCE_S, Older
from pluribus.stack.events import AnyOrder, Consumed, JoinGroup, LeaveGroup, Members, ViewChanged
from pluribus.wire.bodies import DATA, decode_bodies, encode_body, join_bodies
from tests.layers.alone import GROUP, Alone

A, B, C, X = 11, 22, 33, 99


class Reader(Alone):
    """A member of the group that writes down what it got, message by message, and consumes it at once."""

    def __init__(self, *members: int) -> None:
        super().__init__(Semantic(), A)
        self.enter(1, members or (A, B, C), "semantic")
        self.frames = 0
        self.got: list[tuple[int, int]] = []
        self.orphans: list[tuple[int, int]] = []
        self.bodies: list[object] = []
        self.layer.pass_up = self._take

    def _take(self, frame: Frame) -> None:
        self.up.append(frame)
        marked = frame.headers[-1].orphans if frame.headers else []
        for place, body in enumerate(decode_bodies(frame.kind, frame.bodies, frame.count)):
            self.got.append((frame.sender, frame.first + place))
            self.bodies.append(body)
            if place in marked:
                self.orphans.append((frame.sender, frame.first + place))
        self.layer.event_down(Consumed(frame.sender, frame.group, frame.to, 1, frame.size))

    def gets(self, *frames: Frame) -> None:
        for frame in frames:
            self.frames += 1
            self.layer.up(frame)
            self.layer.validate()

    @property
    def consumed(self) -> tuple[int, int]:
        told = [event for event in self.told_down if isinstance(event, Consumed)]
        return (sum(event.frames for event in told), sum(event.size for event in told))


def batch(sender: int, first: int, *parents: tuple[int, int] | None, older: list[int] | None = None) -> Frame:
    """Text bodies, encoded as they come from the wire."""
    encoded = [encode_body(f"{sender}/{number}")[1] for number in range(first, first + len(parents))]
    return Frame(
        sender=sender,
        group=GROUP,
        first=first,
        count=len(parents),
        size=sum(map(len, encoded)),
        kind=1,
        headers=([Parents(list(parents))] if any(parents) else []) + ([Older(older)] if older else []),
        bodies=join_bodies(1, encoded),
    )


def test_an_answer_waits_for_its_parent():
    reader = Reader()
    reader.gets(batch(C, 0, (B, 0)))
    assert reader.got == []
    reader.gets(batch(B, 0, None))
    assert reader.got == [(B, 0), (C, 0)] and reader.orphans == []
    assert reader.bodies == ["22/0", "33/0"]


def test_nothing_else_waits_neither_the_sender_nor_the_batch():
    reader = Reader()
    reader.gets(batch(C, 0, None, (B, 0), None, (C, 1), (C, 2)), batch(C, 5, None))
    assert reader.got == [(C, 0), (C, 2), (C, 4), (C, 5)]
    reader.gets(batch(B, 0, None, None))
    assert reader.got[4:] == [(B, 0), (B, 1), (C, 1), (C, 3)]
    assert [frame.count for frame in reader.up] == [1, 1, 1, 1, 2, 1, 1]


def test_a_batch_whose_parents_are_there_passes_whole_and_as_it_is():
    reader = Reader()
    whole = batch(B, 0, None, (B, 0), (B, 1), None)
    reader.gets(whole)
    assert reader.up == [whole] and reader.up[0] is whole
    answers = batch(C, 0, (B, 3), (B, 0))
    reader.gets(answers)
    assert reader.up[1] is answers


def test_neighbours_that_are_let_go_together_stay_together():
    reader = Reader()
    reader.gets(batch(C, 0, (B, 0), (B, 0), (B, 0)))
    held = batch(C, 3, (B, 1), (B, 0), (B, 0))
    reader.gets(held, batch(B, 0, None))
    assert [(frame.sender, frame.first, frame.count) for frame in reader.up] == [(B, 0, 1), (C, 0, 3), (C, 4, 2)]


def test_a_parent_that_stands_behind_its_answer_in_the_batch_comes_first():
    reader = Reader()
    reader.gets(batch(B, 0, (B, 2), (B, 0), None))
    assert reader.got == [(B, 2), (B, 0), (B, 1)]


@pytest.mark.parametrize("kind", ["bytes of the wire", "bytes of this member", "data"])
def test_bodies_of_every_kind_are_taken_apart(kind):
    reader = Reader()
    bodies: list[object] = [b"a" * 10, b"b" * 300, b"c"]
    taken = batch(A if kind == "bytes of this member" else C, 0, None, (B, 0), None)
    if kind == "data":
        bodies = [{"a": 1}, [2, 3], None]
        taken.kind, taken.bodies = DATA, join_bodies(DATA, [encode_body(body)[1] for body in bodies])
    else:
        taken.kind, taken.size = 0, 311
        taken.bodies = msgspec.Raw(msgspec.msgpack.encode(bodies)) if kind == "bytes of the wire" else bodies
    size = taken.size
    reader.gets(taken, batch(B, 0, None))
    assert [reader.bodies[0], reader.bodies[3], reader.bodies[1]] == bodies
    assert sum(frame.size for frame in reader.up) == size + 5


def test_the_parts_of_a_batch_are_consumed_as_one():
    reader = Reader()
    taken = batch(C, 0, None, (B, 0), None, (B, 1), None)
    size = taken.size
    reader.gets(taken)
    assert reader.consumed[0] == 0, "parts of it still wait"
    reader.gets(batch(B, 0, None))
    assert reader.consumed[0] == 1
    reader.gets(batch(B, 1, None))
    assert reader.consumed == (3, size + 10) and reader.frames == 3
    assert reader.layer.stats()["waiting"] == 0


def test_bodies_that_nobody_can_read_are_not_held():
    reader = Reader()
    broken = batch(C, 0, None, (B, 0))
    broken.bodies = msgspec.Raw(b"\x93\x01")
    reader.layer.pass_up = reader.up.append
    reader.gets(broken)
    assert reader.up == [broken]
    short = batch(C, 2, (B, 0), (B, 0))
    short.headers = [Parents([(B, 0)])]
    reader.gets(short)
    assert reader.up == [broken, short]


def test_other_groups_and_direct_frames_pass_untouched():
    reader = Reader()
    reader.layer.pass_up = reader.up.append
    for other in (
        Frame(sender=B, group=8, first=0, count=1, headers=[Parents([(C, 9)])]),
        Frame(sender=B, to=A, group=GROUP, first=0, count=1, headers=[Parents([(C, 9)])]),
        Frame(sender=B, group=GROUP),
    ):
        reader.layer.down(other)
        assert reader.down.pop() is other and len(other.headers) <= 1
        reader.layer.up(other)
        assert reader.up.pop() is other


def test_a_mark_from_the_wire_is_not_believed():
    reader = Reader()
    marked = batch(C, 0, None)
    marked.headers = [Parents([None], [0])]
    reader.gets(marked)
    assert reader.got == [(C, 0)] and reader.orphans == []


# Chains and bounds


def test_a_reversed_chain_of_answers_is_released_without_recursion():
    length = 3_000  # three times the recursion limit
    reader = Reader(*range(A, A + length))
    for member in reversed(range(A + 1, A + length)):
        reader.layer.up(batch(member, 0, (member - 1, 0)))
    assert reader.got == [] and reader.layer.stats()["waiting"] == length - 1
    reader.gets(batch(A, 0, None))
    assert reader.got == [(member, 0) for member in range(A, A + length)]


def test_those_that_wait_longest_become_orphans_when_too_many_wait(monkeypatch):
    monkeypatch.setattr(layer, "WAITING_MAX", 32)
    reader = Reader()
    for number in range(40):
        reader.gets(batch(C, number, (B, number + 100)))
    assert reader.got == reader.orphans == [(C, number) for number in range(9)]
    reader.gets(batch(B, 100, *[None] * 40))
    assert len(reader.got) == 80 and len(reader.orphans) == 9


def test_a_parent_that_does_not_come_is_waited_for_for_a_while():
    reader = Reader()
    reader.gets(batch(C, 0, (B, 5)), batch(C, 1, (C, 0)))
    reader.wait(PATIENCE_S * 1.5)
    assert reader.got == []
    reader.wait(PATIENCE_S)
    assert reader.got == [(C, 0), (C, 1)] and reader.orphans == [(C, 0)]
    assert reader.medium.clock.pending == 0, "nothing waits, nothing ticks"
    reader.layer.validate()


def test_an_answer_to_what_waits_here_is_not_an_orphan_however_long_it_waits():
    reader = Reader()
    reader.gets(batch(C, 0, (B, 0)))
    reader.wait(PATIENCE_S * 1.5)
    reader.gets(batch(B, 0, (B, 1)))
    reader.wait(PATIENCE_S)
    assert reader.got == []
    reader.gets(batch(B, 1, None))
    assert reader.got == [(B, 1), (B, 0), (C, 0)] and reader.orphans == []


# Views


def test_at_a_view_change_the_children_of_the_lost_are_orphans_and_their_children_are_not():
    reader = Reader()
    reader.gets(batch(C, 0, (B, 0), (C, 0), None))
    reader.layer.event_up(ViewChanged(2, A, (A, C), primary=True))
    assert reader.got == [(C, 2), (C, 0), (C, 1)] and reader.orphans == [(C, 0)]
    assert isinstance(reader.told_up[-1], ViewChanged)
    assert reader.consumed[0] == reader.frames
    assert reader.layer.orphans == 1


def test_messages_that_wait_for_each_other_are_let_go_with_the_view():
    reader = Reader()
    reader.gets(batch(B, 0, (C, 0)), batch(C, 0, (B, 0)), batch(C, 1, (C, 1)))
    reader.enter(2, (A, B, C), "semantic")
    assert sorted(reader.got) == [(B, 0), (C, 0), (C, 1)]


def test_a_parent_of_nobody_here_is_not_waited_for():
    reader = Reader()
    reader.gets(batch(C, 0, (X, 0)))
    assert reader.got == reader.orphans == [(C, 0)]


def test_a_sender_says_which_parents_it_had_before_the_view():
    reader = Reader()
    reader.gets(batch(B, 0, None, None))
    reader.enter(2, (A, B, C), "semantic")
    reader.gets(batch(B, 2, None))
    reader.layer.down(batch(A, 0, (B, 1), (B, 2), None, (B, 0), (C, 7), (A, 0)))
    reader.layer.down(batch(A, 6, (B, 2)))
    first, second = reader.down
    assert first.headers[1:] == [Older([0, 3])]
    assert len(second.headers) == 1


def test_a_joiner_does_not_wait_for_what_was_before_its_time():
    reader = Reader()
    reader.gets(batch(C, 40, (B, 7), (B, 8), older=[0]))
    assert reader.got == [(C, 40)] and reader.orphans == []
    reader.gets(batch(B, 9, None))
    assert reader.got == [(C, 40), (C, 41), (B, 9)], "the stream of B begins behind it"
    assert reader.orphans == []
    reader.gets(batch(C, 42, (C, 5)))
    assert reader.got[-1] == (C, 42)


def test_a_member_of_before_is_remembered():
    reader = Reader()
    reader.gets(batch(B, 0, None))
    reader.enter(2, (A, C), "semantic")
    reader.gets(batch(C, 0, (B, 0)))
    assert reader.got == [(B, 0), (C, 0)] and reader.orphans == []


def test_members_that_are_gone_are_remembered_only_so_long(monkeypatch):
    monkeypatch.setattr(layer, "SENDERS_MAX", 2)
    reader = Reader(A, 1, 2, 3, 4)
    for sender in (1, 2, 3, 4):
        reader.gets(batch(sender, 0, None))
    reader.enter(2, (A, C), "semantic")
    reader.gets(batch(C, 0, (1, 0), (4, 0)))
    assert reader.orphans == [(C, 0)]


def test_who_leaves_keeps_nothing():
    reader = Reader()
    reader.gets(batch(B, 0, None))
    reader.layer.event_up(ViewChanged(2, B, (A, B, C), primary=True))
    reader.layer.event_up(Members(GROUP, (B, C), {}, agreed=True, promises="semantic"))
    assert reader.layer.stats()["groups"] == 0


def test_without_agreed_views_a_member_that_is_gone_leaves_orphans():
    """As in an ad-hoc stack: no views, and members do not know each other's promises."""
    reader = Alone(Semantic(), A)
    reader.layer.event_down(JoinGroup(GROUP, "x", promises="semantic"))
    reader.layer.event_up(Members(GROUP, (A, B, C), {}))
    reader.layer.up(batch(C, 0, (B, 0)))
    assert reader.up == []
    reader.layer.event_up(Members(GROUP, (A, C), {}))
    assert [frame.headers for frame in reader.up] == [[Parents([(B, 0)], [0])]]
    reader.layer.up(batch(C, 1, (C, 7)))
    reader.layer.event_down(LeaveGroup(GROUP))
    reader.layer.event_up(Members(GROUP, (C,), {}))
    assert [frame.first for frame in reader.up] == [0, 1], "what it holds is not kept from those who account for it"


def test_the_layer_hears_the_member_itself_whatever_the_application_wants():
    reader = Alone(Semantic(), A)
    reader.layer.event_down(JoinGroup(GROUP, "x", own=False, promises="semantic"))
    reader.layer.event_down(JoinGroup(8, "y", own=False, promises="none"))
    first, any_order, second = reader.told_down
    assert (first.own, second.own) == (True, False)
    assert any_order == AnyOrder(GROUP, frozenset({Parents, Older}))


# Out of the sender's order


def ahead(frame: Frame, floor: int) -> Frame:
    frame.headers.append(Ahead(floor))
    return frame


def test_a_message_does_not_wait_for_others_of_its_sender_that_are_missing():
    reader = Reader()
    reader.gets(batch(B, 0, None), ahead(batch(B, 5, (B, 0), None), 1), ahead(batch(C, 3, (B, 6)), 0))
    assert reader.got == [(B, 0), (B, 5), (B, 6), (C, 3)] and reader.orphans == []
    assert all(not isinstance(header, Ahead) for frame in reader.up for header in frame.headers)


def test_an_answer_to_a_message_in_a_gap_waits_for_it():
    reader = Reader()
    reader.gets(batch(B, 0, None), ahead(batch(B, 5, (B, 3)), 1), batch(C, 0, (B, 4), (B, 5)))
    assert reader.got == [(B, 0)], "5 waits for 3, which may come"
    reader.gets(ahead(batch(B, 3, None, None), 1))
    assert reader.got == [(B, 0), (B, 3), (B, 4), (B, 5), (C, 0), (C, 1)] and reader.orphans == []
    reader.gets(batch(B, 1, None, None), batch(B, 6, (B, 1), (B, 2)))
    assert reader.got[6:] == [(B, 1), (B, 2), (B, 6), (B, 7)] and reader.orphans == []


def test_a_stream_that_begins_with_a_gap_begins_where_the_gap_does():
    reader = Reader()
    reader.gets(ahead(batch(B, 12, (B, 9), (B, 10)), 10))
    assert reader.got == [(B, 12)], "9 was before this member's time, 10 is on its way"
    reader.gets(batch(B, 10, None, None))
    assert reader.got == [(B, 12), (B, 10), (B, 11), (B, 13)] and reader.orphans == []


def test_what_is_below_the_floor_is_lost_and_its_answers_do_not_wait():
    reader = Reader()
    reader.gets(
        batch(B, 0, None), ahead(batch(B, 2, None), 1), ahead(batch(B, 9, None), 1), ahead(batch(B, 12, None), 5)
    )
    reader.gets(batch(C, 0, (B, 1), (B, 7)))
    assert reader.got[4:] == reader.orphans == [(C, 0)]


def test_without_agreed_views_a_stream_that_goes_on_elsewhere_has_lost_what_is_between():
    reader = Alone(Semantic(), A)
    reader.layer.event_down(JoinGroup(GROUP, "x", promises="semantic"))
    reader.layer.event_up(Members(GROUP, (A, B, C), {}))
    for frame in (batch(B, 5, None), batch(C, 0, (B, 7), (B, 3))):
        reader.layer.up(frame)
    assert [(frame.sender, frame.first) for frame in reader.up] == [(B, 5), (C, 1)], "3 was before this member's time"
    reader.layer.up(batch(B, 20, None))
    reader.layer.validate()
    assert [frame.headers for frame in reader.up[2:]] == [[Parents([(B, 7)], [0])], []]


def test_what_a_view_left_out_is_lost():
    reader = Reader()
    reader.gets(batch(B, 0, None), ahead(batch(B, 2, None), 1))
    reader.enter(2, (A, B, C), "semantic")
    reader.gets(batch(C, 0, (B, 1), (B, 2)))
    assert reader.orphans == [(C, 0)] and reader.got[-2:] == [(C, 0), (C, 1)]


def test_a_parent_that_was_given_up_is_not_waited_for_again_and_is_delivered_if_it_comes():
    reader = Reader()
    reader.gets(batch(B, 0, None), ahead(batch(B, 2, None), 1), batch(C, 0, (B, 1)))
    reader.wait(PATIENCE_S * 2.5)
    assert reader.orphans == [(C, 0)]
    reader.gets(batch(C, 1, (B, 1)))
    assert reader.orphans == [(C, 0), (C, 1)]
    reader.gets(batch(B, 1, None), batch(C, 2, (B, 1)))
    assert reader.got[-2:] == [(B, 1), (C, 2)] and len(reader.orphans) == 2


# State transfer


def test_intervals_say_what_was_delivered():
    reader = Reader()
    reader.gets(batch(B, 5, None, None, (C, 9), None), batch(C, 0, None))
    assert reader.layer.delivered_intervals(GROUP) == {B: [(5, 6), (8, 8)], C: [(0, 0)]}
    reader.gets(batch(B, 20, None))
    assert reader.layer.delivered_intervals(GROUP)[B] == [(5, 6), (8, 8), (20, 20)]
    assert reader.layer.delivered_intervals(8) == {}
    assert (reader.layer.stats()["delivered"], reader.layer.stats()["intervals"]) == (5, 4)


def test_a_joiner_that_adopts_them_knows_what_is_older():
    reader = Reader()
    reader.gets(batch(C, 10, (B, 3)))
    assert reader.got == []
    reader.layer.adopt_intervals(GROUP, {B: [(0, 1), (3, 6)], C: [(0, 9)], X: [(0, 0)]})
    reader.layer.validate()
    assert reader.got == [(C, 10)] and reader.orphans == []
    reader.gets(batch(C, 11, (X, 0), (B, 6), (B, 7)))
    assert reader.got == [(C, 10), (C, 11), (C, 12)]
    reader.gets(batch(B, 7, None))
    assert reader.got[3:] == [(B, 7), (C, 13)]
    assert reader.layer.delivered_intervals(GROUP) == {B: [(0, 1), (3, 7)], C: [(0, 13)], X: [(0, 0)]}
    reader.layer.down(batch(A, 0, (B, 6), (B, 7)))
    assert reader.down[0].headers[-1] == Older([0])
    reader.layer.adopt_intervals(8, {B: [(0, 1)]})


def test_runs_of_a_sender_are_bounded(monkeypatch):
    monkeypatch.setattr(forest, "RUNS_MAX", 3)
    reader = Reader()
    for first in range(0, 100, 10):
        reader.gets(batch(B, first, None))
    spans = reader.layer.delivered_intervals(GROUP)[B]
    assert len(spans) == 4 and spans[-1] == (90, 90)


def test_consumed_events_of_others_pass():
    reader = Reader()
    for event in (Consumed(B, 8, ALL, 3, 30), Consumed(B, GROUP, A, 1, 1)):
        reader.layer.event_down(event)
        assert reader.told_down[-1] is event
