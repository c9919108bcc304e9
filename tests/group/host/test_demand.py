"""Who is given what: against a plain list of those who wait."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pluribus.group.host.demand import UNLIMITED, Demands
from pluribus.group.host.parts import Parts

CONSUMERS = st.integers(1, 4)


def table():
    made = Demands(Parts(lambda name: made.encode_part(name)))
    return made


def again(demands):
    """The same from its parts."""
    copy = table()
    for name in demands.part_names():
        copy.restore_part(name, demands.encode_part(name))
    copy.restored()
    return copy


def test_those_who_wait_are_served_in_turn():
    demands = table()
    for number in (1, 2, 3):
        consumer = demands.attach(number, owner=number, lease_us=10)
        assert demands.demand(number, consumer.epoch, 1, 10, 1_000, UNLIMITED)
    served = []
    for thing in range(6):
        consumer = demands.next()
        served.append(consumer.number)
        demands.assign(consumer, thing, 5, 1)
    assert served == [1, 2, 3, 1, 2, 3]
    assert [list(demands.consumers[number].held) for number in demands.news] == [[0, 3], [1, 4], [2, 5]]
    assert demands.next(among=[2]).number == 2 and demands.next(among=[]) is None


def test_credit_in_things_and_bytes_and_in_all():
    demands = table()
    consumer = demands.attach(1, 1, 10)
    demands.demand(1, 1, 1, 2, 100, UNLIMITED)
    demands.assign(consumer, 1, 5, 1)
    demands.assign(consumer, 2, 5, 1)
    assert demands.next() is None, "two at a time"
    demands.settle(1, 1, 1)
    assert demands.next() is consumer
    demands.demand(1, 1, 2, 9, 5, UNLIMITED)
    assert demands.next() is None, "five bytes at a time"
    demands.settle(1, 1, 2)
    assert demands.next() is consumer, "one that is too long for the credit is given all the same, alone"
    demands.assign(consumer, 3, 500, 1)
    demands.settle(1, 1, 3)
    demands.demand(1, 1, 3, 9, 100, 1)
    demands.assign(consumer, 4, 5, 1)
    assert demands.next() is None, "it wanted one"
    assert demands.demand(1, 1, 3, 9, 100, 1) and demands.next() is None, "said twice is said once"


def test_attaching_again_gives_what_is_held_and_ends_the_epoch_before():
    demands = table()
    consumer = demands.attach(1, 7, 10)
    demands.demand(1, 1, 1, 5, 100, UNLIMITED)
    demands.assign(consumer, 4, 5, delivery=3)
    here = demands.attach(1, 8, 10)
    assert (here.epoch > 1, here.owner, here.held[4].delivery) == (True, 8, 3)
    assert not demands.demand(1, 1, 2, 5, 100, UNLIMITED) and demands.settle(1, 1, 4) is None
    assert demands.next() is None, "it has not said yet what it wants"
    assert demands.settle(1, here.epoch, 4).delivery == 3 and demands.settle(1, here.epoch, 4) is None


def test_a_consumer_that_was_forgotten_does_not_get_its_old_epoch():
    demands = table()
    first = demands.attach(1, 7, 10)
    epoch = first.epoch
    demands.demand(1, epoch, 1, 5, 100, UNLIMITED)
    demands.assign(first, 4, 5, delivery=1)
    demands.expire([7])
    here = demands.attach(1, 7, 10)
    demands.demand(1, here.epoch, 1, 5, 100, UNLIMITED)
    demands.assign(here, 4, 5, delivery=2)
    assert demands.settle(1, epoch, 4) is None, "it settles what it was given in its former life"
    assert demands.detach(1, epoch) == {} and list(demands.detach(1, here.epoch)) == [4]


def test_assignments_are_told_once_wherever_they_are_asked_for():
    demands = table()
    consumer = demands.attach(1, 7, 10)
    demands.demand(1, consumer.epoch, 1, 9, 100, UNLIMITED)
    for thing in (11, 12, 13, 14):
        demands.assign(consumer, thing, 5, 1)
    demands.settle(1, consumer.epoch, 12)
    told = demands.given(1, consumer.epoch, 0)
    assert [(thing, held.number) for thing, held in told] == [(11, 1), (13, 3), (14, 4)]
    assert again(demands).given(1, consumer.epoch, 3) == told[2:] and demands.given(1, consumer.epoch, 4) == []
    assert demands.given(1, consumer.epoch + 1, 0) is None and demands.given(2, 1, 0) is None


def test_a_thing_that_is_too_long_for_the_credit_goes_to_another_or_waits():
    demands = table()
    first, second = demands.attach(1, 1, 10), demands.attach(2, 1, 10)
    for consumer in (first, second):
        demands.demand(consumer.number, consumer.epoch, 1, 9, 100, UNLIMITED)
    demands.assign(first, 1, 60, 1)
    demands.assign(second, 2, 10, 1)
    assert demands.next(size=50) is second and demands.next(size=40) is first
    assert demands.next(size=200) is None, "nobody has room for it"
    demands.settle(2, second.epoch, 2)
    assert demands.next(size=200) is second, "one that holds nothing may have it"


def test_a_consumer_may_attach_elsewhere():
    demands = table()
    consumer = demands.attach(1, 1, 10, tag=1)
    demands.demand(1, consumer.epoch, 1, 9, 100, UNLIMITED)
    consumer = demands.attach(1, 2, 10, tag=2)
    demands.demand(1, consumer.epoch, 1, 9, 100, UNLIMITED)
    assert demands.next(1) is None and demands.next(2) is consumer and list(demands.owners()) == [2]
    demands.validate()


def test_what_an_owner_held_is_told_when_it_expires():
    demands = table()
    for number in (1, 2, 3):
        consumer = demands.attach(number, owner=number % 2, lease_us=10 * number)
        demands.demand(number, consumer.epoch, 1, 5, 100, UNLIMITED)
        demands.assign(consumer, 10 * number, 5, 1)
    assert {owner: demands.lease_us(owner) for owner in demands.owners()} == {1: 10, 0: 20}
    assert demands.lease_us(9) is None
    gone = demands.expire([1])
    assert {number: list(held) for number, held in gone.items()} == {1: [10], 3: [30]}
    assert list(demands.consumers) == [2]


def test_too_many_consumers_are_refused(monkeypatch):
    monkeypatch.setattr("pluribus.group.host.demand.CONSUMERS_MAX", 1)
    demands = table()
    assert demands.attach(1, 1, 10) is not None and demands.attach(2, 1, 10) is None
    assert demands.attach(1, 1, 10) is not None


class AgainstAList(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.demands = table()
        self.line = []
        self.held = {}
        self.thing = self.serial = 0

    def room(self, number):
        consumer = self.demands.consumers.get(number)
        return consumer is not None and consumer.want != 0 and len(consumer.held) < consumer.things_max

    def queue(self, number):
        if not self.room(number):
            self.line = [one for one in self.line if one != number]
        elif number not in self.line:
            self.line.append(number)

    @rule(number=CONSUMERS)
    def attach(self, number):
        self.demands.attach(number, number, 10)
        self.line = [one for one in self.line if one != number]

    @rule(number=CONSUMERS, things=st.integers(0, 3), want=st.integers(-1, 2))
    def demand(self, number, things, want):
        self.serial += 1
        consumer = self.demands.consumers.get(number)
        if consumer is not None:
            assert self.demands.demand(number, consumer.epoch, self.serial, things, 1 << 30, want)
            self.queue(number)

    @rule()
    def give(self):
        consumer = self.demands.next()
        assert (None if consumer is None else consumer.number) == (self.line[0] if self.line else None)
        if consumer is not None:
            self.thing += 1
            self.demands.assign(consumer, self.thing, 1, 1)
            self.held[self.thing] = consumer.number
            self.line.remove(consumer.number)
            self.queue(consumer.number)

    @rule(data=st.data())
    def settle(self, data):
        if self.held:
            thing = data.draw(st.sampled_from(sorted(self.held)))
            number = self.held.pop(thing)
            assert self.demands.settle(number, self.demands.consumers[number].epoch, thing) is not None
            self.queue(number)

    @rule(number=CONSUMERS)
    def detach(self, number):
        gone = self.demands.detach(number)
        assert sorted(gone) == sorted(thing for thing, who in self.held.items() if who == number)
        self.held = {thing: who for thing, who in self.held.items() if who != number}
        self.line = [one for one in self.line if one != number]

    @rule()
    def reopen(self):
        copy = again(self.demands)
        assert copy.part_names() == self.demands.part_names()
        assert [copy.encode_part(name) for name in copy.part_names()] == [
            self.demands.encode_part(name) for name in copy.part_names()
        ]
        self.demands = copy

    @invariant()
    def holds(self):
        self.demands.validate()
        assert [consumer.number for consumer in self.demands.waiting()] == self.line


AgainstAList.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestAgainstAList = pytest.mark.filterwarnings("default")(AgainstAList.TestCase)
