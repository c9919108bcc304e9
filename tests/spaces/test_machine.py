"""The replicated space against a plain list of tuples, under every command, with its snapshots taken all the time."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pluribus.group.host.machine import Ground, Refusal
from pluribus.group.once import OrderedSessions
from pluribus.spaces import words
from pluribus.spaces.machine import SpaceMachine
from pluribus.spaces.templates import ANY, template_of
from pluribus.spaces.values import item_of
from pluribus.spaces.words import Done, Ended, Nothing, Taken, Waiting, Written

TUPLES = st.sampled_from([("a", 0), ("a", 1), ("b", 0), ("b", 2), ("a", 1, "x"), ("b", 3, None), ("a", 2, 1.5)])
TEMPLATES = st.sampled_from(
    [
        template_of((str, int)),
        template_of(("a", ANY)),
        template_of(("a", int)),
        template_of((ANY, 0)),
        template_of(("b", 2)),
        template_of((str, int), "f1 > 0"),
        template_of((str, int), "f1 <= 2 AND f0 = 'a'"),
        template_of((str, int, str | None)),
        template_of((ANY, int, ANY), "f1 >= 1"),
        template_of(("a", 1, ANY)),
    ]
)
INSIDE = st.sampled_from([0, 0, 0, 0, 1, 2])
LEASE_US = 10_000_000


def machine():
    return SpaceMachine(Ground(1, lambda row, size: None, lambda: 0, OrderedSessions(10, 10, lambda shard: None, 1)))


class Model:
    """One tuple, as a child would keep it."""

    def __init__(self, number, item, until, writer):
        self.number, self.item, self.until, self.writer = number, item, until, writer
        self.taker = self.holder = 0
        self.readers = set()


def rank(template, model):
    """Which of several matches comes first: with a bound on a field that field's lowest, else the oldest."""
    from pluribus.spaces.conditions import range_of
    from pluribus.spaces.values import condition_view

    bounds = range_of(template.where) if template.where else None
    return (0 if bounds is None else condition_view(model.item)[bounds.name], model.number)


class Against(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.machine = machine()
        self.machine.ground.now_us = 1_000_000
        self.tuples = []
        self.waiting = []  # (consumer, owner, template, transaction, most)
        self.given = {}
        self.if_exists = set()
        self.transactions = {}  # number -> until
        self.ended = set()
        self.listeners = {}  # number -> (template, events, again)
        self.numbers = {0: 0, 1: 1, 2: 2}
        self.next = 1
        self.consumer = 1_000

    @property
    def now(self):
        return self.machine.ground.now_us

    def alive(self, model):
        return model.until is None or model.until > self.now

    def acting(self, transaction):
        return not transaction or transaction in self.transactions

    def readable(self, model, transaction=0):
        if model.taker or model.holder or not self.alive(model):
            return False
        return not model.writer or model.writer == transaction

    def seen(self, model, transaction=0):
        """Also while it is on its way to a take, which may end without it."""
        on_its_way = model.holder and not model.writer and self.alive(model)
        return bool(on_its_way) or self.readable(model, transaction)

    def takeable(self, model, transaction):
        return self.readable(model, transaction) and (
            not model.readers or (transaction and model.readers == {transaction})
        )

    def best(self, template, allowed):
        found = [one for one in self.tuples if allowed(one) and template.matches(one.item)]
        return min(found, key=lambda one: rank(template, one), default=None)

    def hidden(self, template, transaction):
        return any(
            template.matches(one.item)
            and self.alive(one)
            and (one.taker or (one.readers and one.readers != {transaction}) or one.holder)
            and not (one.holder and one.writer)
            for one in self.tuples
        )

    def tell(self, model, again=False):
        for template, events, wants_again, transaction in self.listeners.values():
            if again and not wants_again:
                continue
            if model.writer and transaction != model.writer:
                continue
            if template.matches(model.item):
                events.append(model.number)

    def offer(self, model):
        for consumer, _, template, transaction, most in self.waiting:
            if model.writer and model.writer != transaction:
                continue
            if model.readers and model.readers != {transaction}:
                continue
            held = self.given.get(consumer, [])
            if len(held) < most and template.matches(model.item):
                self.given.setdefault(consumer, []).append(model)
                model.holder = consumer
                # Who was served goes to the end of the line.
                entry = next(one for one in self.waiting if one[0] == consumer)
                self.waiting.remove(entry)
                self.waiting.append(entry)
                return

    def do(self, command):
        outcome = self.machine.do(command)
        self.machine.validate()
        return outcome

    def taken(self, models):
        left_us = [0 if one.until is None else max(one.until - self.now, 1) for one in models]
        return Taken([one.number for one in models], [one.item for one in models], left_us if any(left_us) else [])

    # Rules.

    @rule(value=TUPLES, inside=INSIDE)
    def write_one(self, value, inside):
        self.write([value], False, inside)

    @rule(values=st.lists(TUPLES, min_size=1, max_size=3), leased=st.booleans(), inside=INSIDE)
    def write(self, values, leased, inside):
        inside = self.numbers[inside]
        items = [item_of(value) for value in values]
        outcome = self.do(words.Write(items, LEASE_US if leased else 0, inside))
        if not self.acting(inside):
            assert outcome == Ended("transaction")
            return
        numbers = []
        for item in items:
            model = Model(self.next, item, self.now + LEASE_US if leased else None, inside)
            numbers.append(self.next)
            self.next += 1
            self.tuples.append(model)
            self.tell(model)
            self.offer(model)
        assert outcome == Written(numbers, LEASE_US if leased else 0)
        self.machine.tick()

    @rule(template=TEMPLATES)
    def wait(self, template):
        self.take(template, 1, True, 0, False)

    @rule(template=TEMPLATES, most=st.integers(1, 3), wait=st.booleans(), inside=INSIDE, if_exists=st.booleans())
    def take(self, template, most, wait, inside, if_exists):
        inside = self.numbers[inside]
        self.consumer += 1
        owner = 1 + self.consumer % 3
        asked = words.Take(template, most, wait, self.consumer, owner, 5_000_000, inside, if_exists)
        outcome = self.do(asked)
        if not self.acting(inside):
            assert outcome == Ended("transaction")
            return
        found = []
        while len(found) < most:
            model = self.best(template, lambda one: self.takeable(one, inside))
            if model is None:
                break
            found.append(model)
            self.gone(model, inside)
        if found:
            assert outcome == self.taken(found)
        elif wait and (not if_exists or self.hidden(template, inside)):
            assert isinstance(outcome, Waiting)
            self.waiting.append((self.consumer, owner, template, inside, most))
            if if_exists:
                self.if_exists.add(self.consumer)
        else:
            assert outcome == Nothing(self.hidden(template, inside))

    def gone(self, model, transaction):
        model.holder = 0
        if transaction and model.writer != transaction:
            model.taker = transaction
            model.readers = set()
        else:
            self.tuples.remove(model)

    @rule(template=TEMPLATES, inside=st.integers(1, 2))
    def keep(self, template, inside):
        inside = self.numbers[inside]
        outcome = self.do(words.Take(template, transaction=inside, keep=True))
        if not self.acting(inside):
            assert outcome == Ended("transaction")
            return
        model = self.best(template, lambda one: self.readable(one, inside))
        if model is None:
            assert isinstance(outcome, Nothing)
            return
        assert outcome == self.taken([model])
        if model.writer != inside:
            model.readers.add(inside)

    @precondition(lambda self: self.given)
    @rule(owner=st.integers(1, 3))
    def expire_with_something(self, owner):
        self.expire(owner)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def finish(self, data):
        entry = data.draw(st.sampled_from(self.waiting))
        consumer, _, _, transaction, _ = entry
        outcome = self.do(words.Finish(consumer))
        self.waiting.remove(entry)
        given = sorted(self.given.pop(consumer, []), key=lambda one: one.number)
        if not given:
            assert outcome == Nothing()
            return
        assert outcome == self.taken(given)
        for model in given:
            self.gone(model, transaction)
        self.nothing_hidden()

    @rule(owner=st.integers(1, 3))
    def expire(self, owner):
        self.machine.expire([owner])
        self.machine.validate()
        for entry in sorted(one for one in self.waiting if one[1] == owner):
            self.waiting.remove(entry)
            self.come_back(entry[0])

    def come_back(self, consumer):
        for model in sorted(self.given.pop(consumer, []), key=lambda one: one.number):
            model.holder = 0
            if not self.alive(model):
                self.tuples.remove(model)
                continue
            if not (model.writer or model.readers):
                self.tell(model, True)
            self.offer(model)
        self.nothing_hidden()

    @rule(transaction=st.integers(1, 2))
    def join(self, transaction):
        number = self.numbers[transaction]
        if number in self.ended:
            assert self.do(words.Join(number, LEASE_US)) == Ended("transaction")
            number = self.numbers[transaction] = number + 2
        assert isinstance(self.do(words.Join(number, LEASE_US)), words.Leased)
        self.machine.tick()
        self.transactions[number] = self.now + LEASE_US

    @rule(transaction=st.integers(1, 2), commits=st.booleans())
    def end(self, transaction, commits):
        transaction = self.numbers[transaction]
        outcome = self.do(words.Commit(transaction) if commits else words.Abort(transaction))
        if transaction not in self.transactions:
            if transaction not in self.ended:
                assert outcome == (Ended("transaction") if commits else Done())
            return
        assert outcome == Done()
        self.over(transaction, commits)

    def over(self, transaction, commits):
        for entry in sorted(one for one in self.waiting if one[3] == transaction):
            self.waiting.remove(entry)
            self.come_back(entry[0])
        self.listeners = {number: one for number, one in self.listeners.items() if one[3] != transaction}
        del self.transactions[transaction]
        self.ended.add(transaction)
        visible, alone = [], []
        for model in list(self.tuples):
            if transaction in model.readers:
                model.readers.discard(transaction)
                if not model.readers:
                    visible.append((model, None))
                elif len(model.readers) == 1:
                    alone.append(model)
            elif model.writer == transaction or model.taker == transaction:
                wrote = model.writer == transaction
                if wrote == commits:
                    visible.append((model, not wrote))
                    model.writer = model.taker = 0
                else:
                    self.tuples.remove(model)
        self.visible(visible)
        for model in alone:
            if self.alive(model):
                self.offer(model)
        self.nothing_hidden()

    def nothing_hidden(self):
        """Takes that waited for hidden tuples only, and have none to wait for any more, are over."""
        for entry in list(self.waiting):
            consumer, _, template, inside, _ = entry
            if consumer in self.if_exists and not self.given.get(consumer) and not self.hidden(template, inside):
                self.waiting.remove(entry)

    def visible(self, visible):
        for model, again in sorted(visible, key=lambda one: one[0].number):
            if not self.alive(model):
                self.tuples.remove(model)
                continue
            if again is not None:
                self.tell(model, again)
            self.offer(model)

    @rule(template=TEMPLATES, number=st.integers(50, 55), again=st.booleans(), inside=INSIDE)
    def listen(self, template, number, again, inside):
        inside = self.numbers[inside]
        outcome = self.do(words.Notify(number, template, 0, b"mine", inside, again))
        if not self.acting(inside):
            assert outcome == Ended("transaction")
        elif number not in self.listeners:
            self.listeners[number] = (template, [], again, inside)

    @precondition(lambda self: self.listeners)
    @rule(number=st.integers(50, 55))
    def forget(self, number):
        known = self.listeners.pop(number, None)
        assert self.do(words.Forget(number)) == (Done() if known is not None else Ended("registration"))

    @rule(seconds=st.integers(0, 6))
    def time_passes(self, seconds):
        self.machine.ground.now_us += seconds * 1_000_000
        for transaction, until in sorted(self.transactions.items(), key=lambda one: (one[1], one[0])):
            if until <= self.now:
                # Tuples whose lease ended before are gone when the transaction ends.
                self.over(transaction, False)
        self.keep_alive()
        self.machine.tick()
        self.machine.validate()

    def keep_alive(self):
        ended = [one for one in self.tuples if not (self.alive(one) or one.taker or one.holder)]
        if ended:
            self.tuples = [one for one in self.tuples if one not in ended]
            self.nothing_hidden()

    @precondition(lambda self: self.tuples)
    @rule(data=st.data())
    def renew(self, data):
        model = data.draw(st.sampled_from(self.tuples))
        outcome = self.do(words.Renew(model.number, LEASE_US))
        if not self.alive(model):
            assert outcome == Ended("lease")
            return
        assert outcome == words.Leased(LEASE_US)
        self.machine.tick()
        model.until = self.now + LEASE_US

    @precondition(lambda self: self.tuples)
    @rule(data=st.data())
    def cancel(self, data):
        model = data.draw(st.sampled_from(self.tuples))
        outcome = self.do(words.Cancel(model.number))
        if model.taker or model.holder or not self.alive(model):
            assert outcome == Ended("lease"), "a take that is under way decides"
            return
        assert outcome == Done()
        self.tuples.remove(model)
        self.nothing_hidden()

    @rule()
    def joiner(self):
        """A replica that comes late has the same state, and goes on from it."""
        names = self.machine.part_names()
        parts = [(name, self.machine.encode_part(name)) for name in names]
        copy = machine()
        copy.restore(parts)
        copy.ground.now_us = self.now
        assert copy.part_names() == names
        assert [(name, copy.encode_part(name)) for name in names] == parts
        copy.validate()
        self.machine = copy

    @invariant()
    def same(self):
        for kept in self.machine.kept.values():
            model = next(one for one in self.tuples if one.number == kept.number)
            assert (kept.taken, kept.held, kept.written) == (model.taker, model.holder, model.writer)
            assert set(kept.readers) == model.readers
        assert len(self.machine.kept) == len(self.tuples)
        for number, (_, events, _, _) in self.listeners.items():
            told = self.machine.answer(words.Events(number))
            assert [event.number for event in told.events] == events and told.hand_back == b"mine"

    @rule(template=TEMPLATES)
    def look(self, template):
        model = self.best(template, self.readable) or self.best(
            template, lambda one: one.holder and not one.writer and self.alive(one)
        )
        found = self.machine.answer(words.Find(template))
        assert found == (Nothing(self.hidden(template, 0)) if model is None else Taken([model.number], [model.item]))
        every = [one for one in self.tuples if self.seen(one) and template.matches(one.item)]
        assert self.machine.answer(words.Count(template)) == Done(len(every))
        page = self.machine.answer(words.Find(template, 100, 0))
        assert page.numbers == [one.number for one in every]
        if every:
            assert self.machine.answer(words.Find(template, 1, every[0].number - 1)).numbers == [every[0].number]

    @rule(template=TEMPLATES, inside=st.integers(1, 2))
    def look_inside(self, template, inside):
        """A transaction counts and lists what it has written, and locks nothing by that."""
        inside = self.numbers[inside]
        counted = self.machine.answer(words.Count(template, inside))
        page = self.machine.answer(words.Find(template, 100, 0, inside))
        if not self.acting(inside):
            assert counted == page == Ended("transaction")
            return
        every = [one for one in self.tuples if self.seen(one, inside) and template.matches(one.item)]
        assert counted == Done(len(every)) and page.numbers == [one.number for one in every]

    @rule(template=TEMPLATES, value=TUPLES, transaction=st.integers(0, 2))
    def together(self, template, value, transaction):
        """Prepared and committed with other machines: all or nothing."""
        transaction = self.numbers[transaction]
        item = item_of(value)
        commands = [words.Take(template), words.Write([item])]
        if transaction:
            commands.append(words.Commit(transaction))
        prepared = self.machine.prepare(0, range(len(commands)), [words.encode(one) for one in commands])
        model = self.best(template, lambda one: self.takeable(one, 0))
        if model is None or not self.acting(transaction):
            assert isinstance(prepared, Refusal)
            return
        self.machine.commit(prepared)
        self.machine.validate()
        assert words.outcome_of(prepared.results[0]).numbers == [model.number]
        self.tuples.remove(model)
        made = Model(self.next, item, None, 0)
        self.next += 1
        self.tuples.append(made)
        self.tell(made)
        self.offer(made)
        if transaction:
            self.over(transaction, True)


Against.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestAgainstAList = Against.TestCase


def test_leases_end():
    """Of tuples, registrations and transactions; a tuple that a transaction hides outlives its lease no longer."""
    space = machine()
    now = space.ground.now_us = 1_000_000
    item = item_of(("a", 1))
    assert space.do(words.Write([item], LEASE_US)) == Written([1], LEASE_US)
    assert isinstance(space.do(words.Join(7, 2 * LEASE_US)), words.Leased)
    assert isinstance(space.do(words.Notify(5, template_of(("a", int)), LEASE_US)), words.Leased)
    assert space.do(words.Write([item], LEASE_US, 7)) == Written([2], LEASE_US)
    assert space.due_us() == now
    space.tick()
    assert space.due_us() == now + LEASE_US
    space.ground.now_us = now + LEASE_US - 1
    space.tick()
    assert len(space.kept) == 2 and space.do(words.Renew(1, LEASE_US)) == words.Leased(LEASE_US)
    space.tick()
    space.ground.now_us = now + LEASE_US
    assert space.do(words.Take(template_of(("a", int)), transaction=7)) == Taken([1], [item], [LEASE_US - 1])
    space.tick()
    assert space.do(words.Seen(5, 0)) == Ended("registration") and list(space.kept) == [1]
    space.ground.now_us = now + 2 * LEASE_US
    assert space.do(words.Commit(7)) == Ended("transaction"), "it has outlived its lease"
    space.tick()
    assert not space.kept and not space.transactions
    assert space.do(words.Renew(1, LEASE_US)) == Ended("lease") and space.due_us() is None
    space.validate()


def test_events_that_nobody_fetches_are_dropped_and_counted():
    space = machine()
    space.do(words.Notify(5, template_of((int,)), 0, b"mine"))
    items = [item_of((number,)) for number in range(1_500)]
    space.do(words.Write(items))
    told = space.answer(words.Events(5))
    assert told.missed == 1_500 - 1_024 and told.events[0].sequence == told.missed + 1
    assert space.do(words.Seen(5, 1_400)).sequence == 1_500
    assert len(space.answer(words.Events(5, 1_400)).events) == 100
    space.validate()


def test_a_page_does_not_end_at_tuples_whose_lease_is_over():
    space = machine()
    now = space.ground.now_us = 1_000_000
    space.do(words.Write([item_of(("a", number)) for number in range(3)], LEASE_US))
    space.do(words.Write([item_of(("a", 3))]))
    space.tick()
    space.ground.now_us = now + LEASE_US
    assert space.answer(words.Find(template_of(("a", int)), 2, 0)).numbers == [4], "before the tick that removes them"
