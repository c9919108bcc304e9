"""Shared subscriptions as a state machine, run by several members on one log; and last values, in any order."""

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pluribus.pubsub import shares
from pluribus.pubsub.batch import Arrived, EventExtra, Gathering
from pluribus.pubsub.event import Event
from pluribus.pubsub.interest import Interest
from pluribus.pubsub.retained import Retained
from pluribus.pubsub.shares import Shares
from pluribus.pubsub.words import Dealt, Joined, Left, Worked
from pluribus.wire.bodies import BYTES
from tests.harness import only

KEY = "set"
MEMBERS = (11, 22, 33, 44)


class Hand(shares.Hand):
    """A subscriber that begins at once what it is given, unless it lacks it, or its reader is away."""

    def __init__(self, world, taker):
        self.world, self.taker, self.turn, self.has = world, taker, 0, []
        self.away, self.unread = False, []

    def given(self, events, turn):
        if self.away:
            self.unread += [event.id for event in events]
            return
        for event in events:
            self.world.begin(self.taker, event)
            self.has.append(event.id)

    def lacks(self, ids):
        self.world.say(self.taker, back=ids)


class SharesOnOneLog(RuleBasedStateMachine):
    """Every member applies the same log, late by as much as it likes; a word is said by a member that has applied a
    part of the log. A member that joins is given the state. The oracle knows who has begun what, and who is there."""

    def __init__(self):
        super().__init__()
        self.log = []
        self.machines = {}
        self.at = {}
        self.hands = {}
        self.dead = set()
        self.begun = {}
        self.finished = set()
        self.events = {}

    def begin(self, taker, event):
        before = self.begun.setdefault(event.body, [])
        for other in before:
            assert other in self.dead or other == taker, f"{event.body} was begun by {other}, and now by {taker}"
        assert taker not in before, f"{taker} begins {event.body} twice"
        assert event.body not in self.finished, f"{event.body} was finished"
        assert event.again or not before, "who gets it again is told so"
        before.append(taker)

    def say(self, taker, wants=0, done=(), back=()):
        hand = self.hands[taker]
        hand.turn += 1
        self.log.append((taker[0], Worked(KEY, taker[1], hand.turn, wants, list(done), list(back))))

    def catch_up(self, member, upto=None):
        while self.at[member] < (len(self.log) if upto is None else upto):
            sender, word = self.log[self.at[member]]
            self.at[member] += 1
            if isinstance(word, list):
                self.machines[member].give(KEY, list(word), 1)
            else:
                self.machines[member].apply(sender, word)

    @precondition(lambda self: len(self.machines) < len(MEMBERS))
    @rule(place=st.integers(0, 3))
    def come(self, place):
        member = 100 * (len(self.dead) + len(self.machines) + 1) + MEMBERS[place]
        if member in self.machines or (member, 1) in self.dead:
            return
        made = Shares(member)
        if self.machines:
            other = next(iter(self.machines))
            self.catch_up(other)
            made.restore(self.machines[other].snapshot())
        self.at[member] = len(self.log)
        self.machines[member] = made
        hand = self.hands[member, 1] = Hand(self, (member, 1))
        made.enter(KEY, 1, hand)
        self.log.append((member, Joined(KEY, 1)))

    @rule(count=st.integers(1, 5))
    def publish(self, count):
        some = []
        for _ in range(count):
            number = len(self.events)
            self.events[number] = len(self.log)
            some.append(Event(number, 7, (7, number), "t", 0.0))
        self.log.append((0, some))

    @precondition(lambda self: self.machines)
    @rule()
    def all_is_well(self):
        """Everybody reads, and the dealer deals, and everybody hears that."""
        for _ in range(2):
            for member in sorted(self.machines):
                self.catch_up(member)
            self.log += [(m, word) for m, one in self.machines.items() for word in [one.deal(KEY)] if word is not None]

    @precondition(lambda self: self.machines)
    @rule(data=st.data(), wants=st.integers(1, 2))
    def work(self, data, wants):
        """Finish what one has, and want more."""
        member = data.draw(st.sampled_from(sorted(self.machines)))
        hand = self.hands[member, 1]
        done = hand.has[: data.draw(st.integers(0, 1))]
        hand.has = hand.has[len(done) :]
        self.say((member, 1), wants, done)
        self.catch_up(member)
        self.finished.update(id[1] for id in done)

    @precondition(lambda self: self.machines)
    @rule(data=st.data())
    def go_away_or_come_back(self, data):
        """A reader that is away begins nothing; what it was given meanwhile goes back when it comes, or before."""
        member = data.draw(st.sampled_from(sorted(self.machines)))
        hand = self.hands[member, 1]
        hand.away = not hand.away
        if hand.unread:
            self.say((member, 1), 0, back=hand.unread)
            hand.unread = []

    @precondition(lambda self: self.machines)
    @rule(data=st.data())
    def read(self, data):
        member = data.draw(st.sampled_from(sorted(self.machines)))
        self.catch_up(member, data.draw(st.integers(self.at[member], len(self.log))))

    @precondition(lambda self: self.machines)
    @rule(data=st.data(), twice=st.booleans())
    def deal(self, data, twice):
        """Whoever believes to be the dealer says so; it waits for its word before it says the next."""
        member = data.draw(st.sampled_from(sorted(self.machines)))
        if any(s == member and isinstance(word, Dealt) for s, word in self.log[self.at[member] :]):
            return
        word = self.machines[member].deal(KEY)
        if word is not None:
            self.log += [(member, word)] * (2 if twice else 1)

    @precondition(lambda self: self.machines)
    @rule(data=st.data())
    def die(self, data):
        member = data.draw(st.sampled_from(sorted(self.machines)))
        del self.machines[member]
        self.dead.add((member, 1))
        self.log.append((0, Left(KEY, member, 1)))

    @invariant()
    def every_machine_is_consistent(self):
        for machine in self.machines.values():
            machine.validate()

    def teardown(self):
        """Whoever is there finishes all that came since the first of them joined."""
        if not self.machines:
            return
        for member in self.machines:
            self.catch_up(member)
        for _ in range(20 * (len(self.events) + 2)):
            for member in list(self.machines):
                hand = self.hands[member, 1]
                hand.away = False
                self.say((member, 1), 1, hand.has, hand.unread)
                hand.unread = []
                self.finished.update(id[1] for id in hand.has)
                hand.has = []
                word = self.machines[member].deal(KEY)
                if word is not None:
                    self.log.append((member, word))
                for each in self.machines:
                    self.catch_up(each)
        joined = min(
            at for at, (sender, word) in enumerate(self.log) if isinstance(word, Joined) and sender in self.machines
        )
        for number, at in self.events.items():
            assert at < joined or number in self.finished, f"event {number} is lost"
        assert len({machine.snapshot() for machine in self.machines.values()}) == 1


TestShares = SharesOnOneLog.TestCase

ONE_RUN = settings(
    max_examples=300,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def forgetful(self, taker):
    """Forgets what a subscriber held that has died."""
    self.held.pop(taker, None)
    self.wants.pop(taker, None)


def gullible(self, sender, word, apply=Shares.apply):
    """Believes everybody who deals."""
    takers, share = self.takers.get(word.key, ()), self._shares.get(word.key)
    if isinstance(word, Dealt) and share is not None:
        share.dealt((sender, word.number), takers, word)
    else:
        apply(self, sender, word)


def believing(self, dealer, takers, word, dealt=shares.Share.dealt):
    """Believes what newcomers are told, although others came since the dealer said it."""
    dealt(self, dealer, takers, msgspec.structs.replace(word, newest=takers[-1]))


def usurping(self, key):
    """Deals, whoever is the dealer."""
    share = self._shares[key]
    own = [taker for taker in self.takers.get(key, ()) if taker in share.mine]
    return share.deal(own[0], self.takers[key][-1]) if own and share.has_to_say else None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({(shares.Share, "left"): forgetful}, "is lost"),
        ({(Shares, "apply"): gullible, (Shares, "deal"): usurping}, "begin|held|lacks|waits"),
    ],
    ids=["forgetful", "two dealers"],
)
def test_a_mistake_is_found(monkeypatch, broken, sentence):
    for (of, name), method in broken.items():
        monkeypatch.setattr(of, name, method)
    with pytest.raises(AssertionError, match=sentence):
        run_state_machine_as_test(SharesOnOneLog, settings=ONE_RUN)


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


def told_late():
    """Two machines in a set: what the dealer says to a newcomer, of an event that is held, is ordered only when its
    holder has finished the event, and another newcomer has joined."""
    dealer, newcomer = Shares(11), Shares(44)
    dealer.enter(KEY, 1, shares.Hand())
    for word in (Joined(KEY, 1), Worked(KEY, 1, 1, 0)):
        dealer.apply(11, word)
    dealer.apply(22, Joined(KEY, 1))
    dealer.give(KEY, [Event(0, 7, (7, 0), "t", 0.0)], 1)
    dealer.apply(22, Worked(KEY, 1, 1, 1))
    dealer.apply(11, dealer.deal(KEY))
    dealer.apply(33, Joined(KEY, 1))
    late = dealer.deal(KEY)
    assert late.known
    dealer.apply(22, Worked(KEY, 1, 2, 0, done=[(7, 0)]))
    newcomer.restore(dealer.snapshot())
    newcomer.enter(KEY, 1, shares.Hand())
    for machine in (dealer, newcomer):
        machine.apply(44, Joined(KEY, 1))
        machine.apply(11, late)
        machine.apply(0, Left(KEY, 22, 1))
        machine.validate()
    return dealer, newcomer


def test_a_newcomer_believes_nothing_that_was_said_before_it_came(monkeypatch):
    dealer, newcomer = told_late()
    assert dealer.waiting(KEY) == newcomer.waiting(KEY) == 0, "it is finished, and nobody begins it again"
    monkeypatch.setattr(shares.Share, "dealt", believing)
    dealer, newcomer = told_late()
    assert newcomer.waiting(KEY) == 1, "the mistake would be found"


def test_events_whose_bodies_are_long_are_dealt_and_told_one_in_a_word(monkeypatch):
    monkeypatch.setattr(shares, "GRANT_BYTES_MAX", 1_000)
    monkeypatch.setattr(shares, "KNOWN_BYTES_MAX", 500)
    one = Shares(11)
    one.enter(KEY, 1, shares.Hand())
    one.apply(11, Joined(KEY, 1))
    one.give(KEY, [Event(b"x" * 900, 7, (7, number), "t", 0.0) for number in range(5)], 900)
    one.apply(22, Joined(KEY, 1))
    one.apply(22, Worked(KEY, 1, 1, 2))
    given, told, longest = [], [], 0
    while (word := one.deal(KEY)) is not None:
        longest = max(longest, len(msgspec.msgpack.encode(word)))
        given += [id for grant in word.grants for id in grant.ids]
        told += [shares._ids_of(known.whole)[0] for known in word.known]
        one.apply(11, word)
        one.apply(22, Worked(KEY, 1, 1 + len(given), 2 - len(given)))
    assert given == [(7, 0), (7, 1)] and sorted(told) == [(7, 2), (7, 3), (7, 4)]
    assert longest < 1_100, "two of them would not fit"
    one.validate()


@pytest.mark.parametrize(("limit", "value"), [("SHARED_WAITING_MAX", 3), ("SHARED_WAITING_BYTES_MAX", 3_000)])
def test_the_oldest_are_dropped_beyond_a_number_and_beyond_bytes(monkeypatch, limit, value):
    monkeypatch.setattr(shares, limit, value)
    dropped = []

    class Told(shares.Hand):
        def missed(self, count):
            dropped.append(count)

    one = Shares(11)
    one.enter(KEY, 1, Told())
    one.apply(11, Joined(KEY, 1))
    one.give(KEY, [Event(number, 7, (7, number), "t", 0.0) for number in range(5)], 1_000)
    one.validate()
    assert dropped == [2] and list(one._shares[KEY].waiting) == [(7, 2), (7, 3), (7, 4)]
    if limit == "SHARED_WAITING_BYTES_MAX":
        one.give(KEY, [Event(5, 7, (7, 5), "t", 0.0)], 10_000)
        one.validate()
        assert list(one._shares[KEY].waiting) == [(7, 5)], "a single one may be longer"


def test_what_those_who_are_gone_were_told_is_not_known_to_who_came_after_that():
    one = Shares(11)
    one.enter(KEY, 1, shares.Hand())
    one.apply(11, Joined(KEY, 1))
    one.give(KEY, [Event(0, 7, (7, 0), "t", 0.0)], 1)
    one.apply(22, Joined(KEY, 1))
    one.apply(11, one.deal(KEY))
    assert one.left_over(KEY, one.takers[KEY], frozenset()) == [], "22 has it too"
    one.apply(0, Left(KEY, 22, 1))
    one.apply(33, Joined(KEY, 1))
    assert [event.id for event in one.left_over(KEY, one.takers[KEY], frozenset())] == [(7, 0)]
    one.apply(11, one.deal(KEY))
    assert one.left_over(KEY, one.takers[KEY], frozenset()) == [], "33 has it too"
    one.validate()


def test_what_comes_back_from_who_is_gone_counts_among_what_waits(monkeypatch):
    monkeypatch.setattr(shares, "SHARED_WAITING_MAX", 3)
    dropped = []

    class Told(shares.Hand):
        def missed(self, count):
            dropped.append(count)

    one = Shares(11)
    one.enter(KEY, 1, Told())
    for member in (11, 22):
        one.apply(member, Joined(KEY, 1))
    one.give(KEY, [Event(0, 7, (7, 0), "t", 0.0)], 1)
    one.apply(22, Worked(KEY, 1, 1, 1))
    one.apply(11, one.deal(KEY))
    one.give(KEY, [Event(number, 7, (7, number), "t", 0.0) for number in range(1, 4)], 1)
    assert dropped == []
    one.apply(0, Left(KEY, 22, 1))
    one.validate()
    assert dropped == [1] and one.waiting(KEY) == 3


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
