"""Shared subscriptions as a state machine, run by several members on one log; and last values, in any order."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pluribus.pubsub.batch import Arrived, EventExtra, Gathering
from pluribus.pubsub.event import Event
from pluribus.pubsub.interest import Interest
from pluribus.pubsub.retained import Retained
from pluribus.pubsub.shares import Shares, chosen
from pluribus.pubsub.words import Finished, Joined, Left
from pluribus.wire.bodies import BYTES
from tests.harness import only

KEY = "set"
MEMBERS = (11, 22, 33, 44)


class SharesOnOneLog(RuleBasedStateMachine):
    """Every member applies the same log; a member that joins is given the state. The oracle is a list of deliveries."""

    def __init__(self):
        super().__init__()
        self.machines = {}
        self.numbers = 0
        self.got = []
        self.finished = Counter()
        self.events = {}
        self.died = set()

    def apply(self, sender, word):
        for shares in self.machines.values():
            shares.apply(sender, word)

    @precondition(lambda self: len(self.machines) < len(MEMBERS))
    @rule(place=st.integers(0, 3))
    def come(self, place):
        member = 100 * (len(self.died) + len(self.machines) + 1) + MEMBERS[place]
        if member in self.machines or member in self.died:
            return
        shares = Shares(member)
        if self.machines:
            shares.restore(next(iter(self.machines.values())).snapshot())
        self.machines[member] = shares
        self.numbers += 1
        number = self.numbers
        taker = (member, number)
        shares.enter(KEY, number, lambda events: self.got.extend((taker, event) for event in events))
        self.apply(member, Joined(KEY, number))

    @rule(count=st.integers(1, 5))
    def publish(self, count):
        some = []
        for _ in range(count):
            number = len(self.events)
            event = Event(number, 7, (7, number), "t", 0.0)
            self.events[number] = (event, set(self.machines))
            some.append(event)
        for shares in self.machines.values():
            shares.give(KEY, list(some))

    @precondition(lambda self: self.got)
    @rule(data=st.data())
    def finish(self, data):
        taker, event = data.draw(st.sampled_from(self.got))
        if taker[0] in self.machines:
            mine = [one.id for owner, one in self.got if owner == taker]
            self.finished.update(mine[: mine.index(event.id) + 1])
            self.apply(taker[0], Finished(KEY, taker[1], event.id))

    @precondition(lambda self: self.machines)
    @rule(data=st.data())
    def die(self, data):
        member = data.draw(st.sampled_from(sorted(self.machines)))
        del self.machines[member]
        self.died.add(member)
        for word in next(iter(self.machines.values())).gone(tuple(self.machines)) if self.machines else ():
            self.apply(0, Left(word.key, word.member, word.number))

    @invariant()
    def each_event_has_one_taker_who_lives_unless_all_who_could_are_dead(self):
        first = Counter(event.body for _, event in self.got if not event.again)
        assert all(count == 1 for count in first.values())
        assert set(first) == {number for number, (_, there) in self.events.items() if there}
        alive = {event.body for taker, event in self.got if taker[0] in self.machines}
        for number, (event, there) in self.events.items():
            if there & set(self.machines) and event.id not in self.finished:
                assert number in alive, f"event {number} is lost"

    @invariant()
    def everybody_knows_the_same_set(self):
        assert len({shares.snapshot() for shares in self.machines.values()}) <= 1


TestShares = SharesOnOneLog.TestCase


@given(st.integers(1, 1 << 62), st.integers(2, 9), st.integers(1, 4))
def test_events_are_spread_evenly_whatever_their_numbers(sender, takers, step):
    found = Counter(chosen((sender, number * step), takers) for number in range(2_000))
    assert max(found.values()) < 2 * 2_000 / takers and len(found) == takers


values = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 4), st.binary(max_size=2)), max_size=12
)


def retained(events):
    table = Retained()
    for place, (topic, sender, time, body) in enumerate(events):
        gathering = Gathering(sender, 1_000, first=place)
        gathering.add(topic, BYTES, body, float(time), EventExtra({}, None, True))
        table.take(Arrived(only(gathering.close())))
    return table


@given(values, st.randoms(use_true_random=False))
def test_last_values_are_the_same_in_whatever_order_they_come(events, random):
    numbered = list(enumerate(events))
    ways = []
    for _ in range(2):
        random.shuffle(numbered)
        table = Retained()
        for place, (topic, sender, time, body) in numbered:
            gathering = Gathering(sender, 1_000, first=place)
            gathering.add(topic, BYTES, body, float(time), EventExtra({}, None, True))
            table.take(Arrived(only(gathering.close())))
        ways.append(table)
    one, other = ways
    assert one.digest == other.digest and sorted(one.snapshot()) == sorted(other.snapshot())
    assert one.merge(other.snapshot()) == []
    last = {}
    for place, (topic, sender, time, body) in enumerate(events):
        last[topic] = max(last.get(topic, (0,)), (time, sender, place, body))
    assert {e.topic: e.body for e in one.of(Interest("#"))} == {t: v[3] for t, v in last.items() if v[3]}


@given(values, values)
def test_merging_is_having_got_both(ours, theirs):
    one, other = retained(ours), retained(theirs)
    both, swapped = retained(ours), retained(theirs)
    later = both.merge(other.snapshot())
    swapped.merge(one.snapshot())
    assert both.digest == swapped.digest
    assert (both.digest == one.digest) == (not later)
