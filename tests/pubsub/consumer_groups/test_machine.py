"""Consumer groups as a state machine: single promises by example, all of them against a dumb list."""

from random import Random

import pytest

from pluribus.group.host.machine import Ground
from pluribus.group.once import OrderedSessions
from pluribus.pubsub.consumer_groups import words
from pluribus.pubsub.consumer_groups.machine import ConsumerGroup
from pluribus.pubsub.consumer_groups.words import AGAIN, DONE, ENDED, REFUSED, Ahead, Join, Leave, Redrive, Settle


class Group:
    """One machine, and what its members hold."""

    def __init__(self):
        self.machine = self.new()

    def new(self):
        return ConsumerGroup(Ground(5, lambda row, size: None, lambda: 0, OrderedSessions()))

    def do(self, command):
        outcome = self.machine.apply(0, 0, words.encode(command))
        self.machine.validate()
        return outcome

    def join(self, number, room=10, tries=3, patterns=("t",)):
        return self.do(Join(number, number, 1_000, list(patterns), "", tries, {"t": 0}, room, 1_000)).number

    def ahead(self, count, keys=(), topic="t"):
        start = self.machine.seen(topic)
        events = [(start + at, 10, keys[at] if keys else 0) for at in range(count)]
        return self.do(Ahead(topic, start, start + count, events))

    def held(self, number):
        """Offsets, with the assignment of each."""
        held = self.machine.demands.consumers[number].held
        return {self.machine._things[thing][1]: thing for thing in held}

    def ack(self, number, epoch, *offsets):
        held = self.held(number)
        return self.do(Settle(number, epoch, [(held[offset], 1) for offset in offsets]))

    def back(self, number, epoch, offset, reason="no"):
        return self.do(Settle(number, epoch, [], [(self.held(number)[offset], reason)]))

    def saved(self):
        return [(name, self.machine.encode_part(name)) for name in self.machine.part_names()]


def test_events_are_shared_out_evenly_among_those_who_wait_and_each_goes_to_one():
    group = Group()
    first, second = group.join(1), group.join(2)
    group.ahead(6)
    assert sorted([*group.held(1), *group.held(2)]) == list(range(6))
    assert len(group.held(1)) == len(group.held(2)) == 3
    group.ack(1, first, *group.held(1))
    group.ack(2, second, *group.held(2))
    standing = group.machine.standing()
    assert [(one.settled, one.seen, one.open) for one in standing.positions] == [(6, 6, 0)]


def test_who_has_no_room_gets_nothing_and_who_settles_gets_more():
    group = Group()
    epoch = group.join(1, room=2)
    group.ahead(5)
    assert list(group.held(1)) == [0, 1]
    group.ack(1, epoch, 1)
    assert list(group.held(1)) == [0, 2]
    assert group.machine.standing().positions[0].settled == 0
    group.ack(1, epoch, 0)
    assert group.machine.standing().positions[0].settled == 2


def test_what_a_dead_member_held_goes_to_the_others_in_its_old_place():
    group = Group()
    group.join(1, room=2)
    group.ahead(4)
    second = group.join(2, room=1)
    assert list(group.held(2)) == [2]
    group.machine.expire([1])
    group.machine.validate()
    group.ack(2, second, 2)
    assert list(group.held(2)) == [0]
    held = next(iter(group.machine.demands.consumers[2].held.values()))
    assert held.delivery == 2


def test_a_member_that_joins_again_keeps_what_it_holds_and_its_old_epoch_settles_nothing():
    group = Group()
    old = group.join(1)
    group.ahead(3)
    held = group.held(1)
    outcome = group.do(Join(1, 1, 1_000, ["t"], "", 3, {}, 10, 1_000))
    assert outcome.held == list(held.values()) and outcome.number > old
    assert group.do(Settle(1, old, [(held[0], 1)])).status == ENDED
    assert group.ack(1, outcome.number, 0).status == DONE
    assert list(group.held(1)) == [1, 2]


def test_events_of_one_key_are_handed_out_one_after_another_in_their_order():
    group = Group()
    first, second = group.join(1), group.join(2)
    group.ahead(4, keys=(7, 7, 8, 7))
    everything = {**dict.fromkeys(group.held(1), 1), **dict.fromkeys(group.held(2), 2)}
    assert sorted(everything) == [0, 2]
    who = everything[0]
    group.back(who, {1: first, 2: second}[who], 0)
    assert 1 not in {**group.held(1), **group.held(2)}
    for due in (0, 1, 3):
        who = 1 if due in group.held(1) else 2
        assert due in group.held(who)
        group.ack(who, {1: first, 2: second}[who], due)


def test_an_event_that_is_given_back_too_often_is_a_dead_letter_until_it_is_redriven():
    group = Group()
    epoch = group.join(1, tries=2)
    group.ahead(2, keys=(7, 7))
    group.back(1, epoch, 0, "first")
    assert list(group.held(1)) == [0]
    group.back(1, epoch, 0, "second")
    assert list(group.held(1)) == [1]
    dead = group.machine.standing().dead
    assert [(one.topic, one.offset, one.tries, one.reason) for one in dead] == [("t", 0, 2, "second")]
    assert group.do(Redrive(10)).number == 1
    group.ack(1, epoch, 1)
    assert list(group.held(1)) == [0] and not group.machine.standing().dead


def test_leaving_does_not_count_as_a_try():
    group = Group()
    for number in range(1, 5):
        group.join(number, tries=1)
        if number == 1:
            group.ahead(1)
        assert list(group.held(number)) == [0]
        group.do(Leave(number))
    assert not group.machine.standing().dead


def test_what_is_brought_twice_or_does_not_fit_is_passed_over():
    group = Group()
    group.join(1)
    assert group.do(Ahead("t", 0, 3, [(0, 1, 0), (1, 1, 0)])).status == DONE
    assert group.do(Ahead("t", 0, 3, [(0, 1, 0), (1, 1, 0)])).status == AGAIN
    assert group.do(Ahead("t", 3, 5, [(5, 1, 0)])).status == REFUSED
    assert group.do(Ahead("other", 0, 1, [(0, 1, 0)])).status == REFUSED
    assert group.machine.apply(0, 0, b"\x00\xff").status == REFUSED
    assert list(group.held(1)) == [0, 1] and group.machine.seen("t") == 3


def test_who_joins_with_other_topics_is_told_what_the_group_reads():
    group = Group()
    group.join(1)
    outcome = group.do(Join(2, 2, 1_000, ["u"], "", 3))
    assert outcome.status == REFUSED and "the group was made for t with" in outcome.reason


@pytest.mark.parametrize("seed", range(20))
def test_every_event_is_settled_once_whatever_members_do_and_whenever_the_state_is_restored(seed):
    random = Random(seed)
    group = Group()
    epochs, settled, keys = {1: group.join(1, tries=2)}, [], []
    for _ in range(300):
        roll = random.random()
        number = random.randrange(1, 5)
        if roll < 0.25:
            some = [random.choice((0, 0, 1 << 56, 1 << 57)) for _ in range(random.randrange(1, 5))]
            keys += some
            group.ahead(len(some), keys=some)
        elif roll < 0.4:
            epochs[number] = group.join(number, room=random.randrange(1, 5), tries=2)
        elif roll < 0.45:
            group.do(Leave(number))
            epochs.pop(number, None)
        elif roll < 0.5:
            group.machine.expire([number])
            epochs.pop(number, None)
        elif roll < 0.55:
            before = group.saved()
            group.machine = group.new()
            group.machine.restore(before)
            group.machine.validate()
            assert group.saved() == before
        elif roll < 0.6:
            group.do(Redrive(random.randrange(3)))
        elif number in epochs and group.held(number):
            offset = random.choice(list(group.held(number)))
            if random.random() < 0.2:
                group.back(number, epochs[number], offset)
            else:
                group.ack(number, epochs[number], offset)
                settled.append(offset)
    for number in list(epochs):
        group.do(Leave(number))
    group.do(Redrive(1_000))
    epoch = group.join(9, room=1_000, tries=2)
    while group.held(9):
        offset = next(iter(group.held(9)))
        group.ack(9, epoch, offset)
        settled.append(offset)
    assert sorted(settled) == list(range(len(keys)))
