"""Causal order against an oracle that knows every cause of every batch and rescans all of them at every step."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pluribus.core.frame import Frame, Parents
from pluribus.core.ids import ALL
from pluribus.layers.causal import Causal, Known
from pluribus.stack.events import Consumed, Members, ViewChanged
from pluribus.wire.codec import Codec
from tests.layers.alone import GROUP, Alone

A, B, C, D = 11, 22, 33, 44


def frame(sender: int, first: int, count: int = 1, **more) -> Frame:
    bodies = [b"%d" % number for number in range(first, first + count)]
    return Frame(sender=sender, group=GROUP, first=first, count=count, size=10 * count, bodies=bodies, **more)


class Peer(Alone):
    """A member: batches that it closes come back to it at once, and wait in one queue for each of the others."""

    def __init__(self, me: int) -> None:
        super().__init__(Causal(), me)
        self.next = 0

    def close(self, count: int) -> Frame:
        sent = frame(self.me, self.next, count)
        self.next += count
        self.layer.down(sent)
        self.layer.up(sent.copy())
        return sent

    @property
    def delivered(self) -> list[tuple[int, int]]:
        return [(frame.sender, frame.first) for frame in self.up]


def peers(*members: int) -> list[Peer]:
    made = [Peer(member) for member in members]
    for peer in made:
        peer.enter(1, members, "causal")
    return made


def test_an_effect_waits_for_its_cause_and_only_for_that():
    a, b, c = peers(A, B, C)
    cause = a.close(2)
    b.layer.up(cause.copy())
    effect = b.close(1)
    c.layer.up(effect.copy())
    assert c.delivered == []
    own = c.close(1)
    assert c.delivered == [(C, 0)], "what is independent of it does not wait"
    c.layer.up(cause.copy())
    assert c.delivered == [(C, 0), (A, 0), (B, 0)]
    a.layer.up(effect.copy())
    a.layer.up(own.copy())
    assert a.delivered == [(A, 0), (B, 0), (C, 0)]
    assert c.layer.early == 1


def test_only_growth_travels():
    a, b, _ = peers(A, B, C)
    assert a.close(5).headers == [Known([])]
    assert a.close(5).headers == [Known([])], "its own messages are ordered anyway"
    b.layer.up(a.down[0].copy())
    assert b.close(1).headers == [Known([5, 0, 0])]
    assert b.close(1).headers == [Known([])]
    b.layer.up(a.down[1].copy())
    assert b.close(1).headers == [Known([5, 0, 0])]


def test_the_header_is_small_and_travels():
    codec = Codec("demo", Causal.headers)
    peer = frame(A, 0, headers=[Known([1] * 200)])
    peer.bodies = msgspec.Raw(b"\x91\xa0")
    peer.size = 0
    assert codec.decode(codec.encode(peer)).headers == [Known([1] * 200)]
    assert len(msgspec.msgpack.encode(Known([1] * 200))) < 210


def test_other_groups_and_direct_frames_pass_untouched():
    a, _ = peers(A, B)
    for other in (
        Frame(sender=B, group=8, first=0, count=1),
        frame(B, 0, to=A),
        Frame(sender=B, group=GROUP, headers=[Parents([])]),
    ):
        a.layer.down(other)
        assert a.down.pop() is other and other.headers in ([], [Parents([])])
        a.layer.up(other)
        assert a.up.pop() is other
    a.layer.event_up(Members(8, (A, B), {}, agreed=True, promises="fifo"))
    a.layer.down(Frame(sender=A, group=8, first=0, count=1))
    assert a.down.pop().headers == []


def test_a_frame_that_does_not_fit_the_view_is_dropped_and_accounted_for():
    a, _ = peers(A, B)
    a.layer.up(frame(B, 0, headers=[Known([0, 0, 0])]))
    a.layer.up(frame(D, 0, headers=[Known([])]))
    assert a.up == [] and a.layer.malformed == 2
    assert a.told_down == [Consumed(B, GROUP, ALL, 1, 10), Consumed(D, GROUP, ALL, 1, 10)]


def test_what_misses_a_message_that_nobody_has_is_dropped_with_the_view():
    a, b, c = peers(A, B, C)
    b.layer.up(a.close(1).copy())
    c.layer.up(b.close(3).copy())
    assert c.up == []
    c.enter(2, (C,), "causal")
    assert c.up == [] and c.layer.lost_dependencies == 3
    assert c.told_down == [Consumed(B, GROUP, ALL, 1, 30)]
    assert isinstance(c.told_up[-2], ViewChanged)
    assert c.close(1).headers == [Known([])] and c.delivered == [(C, 0)]


def test_who_is_not_in_the_group_keeps_nothing_of_it():
    a, _ = peers(A, B)
    a.layer.event_up(ViewChanged(2, A, (A, B), primary=True))
    a.layer.event_up(Members(GROUP, (B,), {}, agreed=True, promises="causal"))
    assert a.layer.stats()["groups"] == 0


def test_a_long_queue_is_released_without_recursion():
    a, b, c = peers(A, B, C)
    cause = a.close(1)
    b.layer.up(cause.copy())
    for _ in range(3_000):
        c.layer.up(b.close(1).copy())
    assert c.up == []
    c.layer.up(cause.copy())
    assert c.delivered == [(A, 0), *((B, number) for number in range(3_000))]
    c.layer.validate()


class Views(RuleBasedStateMachine):
    """Four members, FIFO streams between them in any interleaving, crashes, and view changes with a common cut."""

    @initialize()
    def begin(self) -> None:
        self.view = 1
        self.peers = {peer.me: peer for peer in peers(A, B, C, D)}
        self.causes: dict[tuple[int, int], frozenset[tuple[int, int]]] = {}
        self._reset()

    def _reset(self) -> None:
        self.got = {me: dict.fromkeys(self.peers, 0) for me in self.peers}
        self.sent: dict[int, list[Frame]] = {member: [] for member in self.peers}
        self.before = {me: len(peer.up) for me, peer in self.peers.items()}

    def _seen(self, peer: Peer) -> list[tuple[int, int]]:
        return peer.delivered[self.before[peer.me] :]

    @rule(member=st.sampled_from([A, B, C, D]), count=st.integers(1, 3))
    def send(self, member: int, count: int) -> None:
        if member in self.peers:
            peer = self.peers[member]
            self.causes[(member, peer.next)] = frozenset(self._seen(peer))
            self.sent[member].append(peer.close(count))
            self.got[member][member] += 1

    @rule(member=st.sampled_from([A, B, C, D]), of=st.sampled_from([A, B, C, D]))
    def arrive(self, member: int, of: int) -> None:
        if member in self.peers and of in self.peers and self.got[member][of] < len(self.sent[of]):
            self._hand(member, of)

    def _hand(self, member: int, of: int) -> None:
        at = self.got[member][of]
        self.got[member][of] += 1
        self.peers[member].layer.up(self.sent[of][at].copy())
        self._check(member)

    def _check(self, member: int) -> None:
        """Exactly what has all its causes is delivered, each behind them."""
        arrived = [(of, frame.first) for of in self.sent for frame in self.sent[of][: self.got[member][of]]]
        expected: set[tuple[int, int]] = set()
        while more := {batch for batch in arrived if batch not in expected and self.causes[batch] <= expected}:
            expected |= more
        seen = self._seen(self.peers[member])
        assert set(seen) == expected and len(seen) == len(expected)
        for place, batch in enumerate(seen):
            assert self.causes[batch] <= set(seen[:place])

    @precondition(lambda self: len(self.peers) > 1)
    @rule(data=st.data())
    def change_view(self, data: st.DataObject) -> None:
        survivors = data.draw(st.sets(st.sampled_from(sorted(self.peers)), min_size=1))
        for of in sorted(self.sent):
            reached = max(self.got[member][of] for member in survivors)
            for member in sorted(survivors):
                while self.got[member][of] < reached:
                    self._hand(member, of)
        sets = {frozenset(self._seen(self.peers[member])) for member in survivors}
        assert len(sets) == 1
        self.view += 1
        for member in sorted(survivors):
            peer = self.peers[member]
            arrived = sum(self.got[member].values())
            lost = len(peer.told_down)
            peer.enter(self.view, tuple(sorted(survivors)), "causal")
            assert len(peer.told_down) - lost == arrived - len(self._seen(peer)), "what is not delivered is accounted"
        self.peers = {member: peer for member, peer in self.peers.items() if member in survivors}
        self._reset()

    @invariant()
    def valid(self) -> None:
        for peer in self.peers.values():
            peer.layer.validate()


Views.TestCase.settings = settings(stateful_step_count=60)
TestViews = Views.TestCase


@pytest.mark.parametrize("members", [2, 200])
def test_a_batch_of_a_view_of_any_size_passes(members):
    everybody = tuple(range(1, members + 1))
    receiver, sender = Peer(1), Peer(members)
    for peer in (receiver, sender):
        peer.enter(1, everybody, "causal")
    sender.layer.up(receiver.close(1).copy())
    receiver.layer.up(sender.close(1).copy())
    assert receiver.delivered == [(1, 0), (members, 0)]
