"""Views and orders under whatever Hypothesis thinks of, against dumb oracles: a view is a connected component; members
that stay together have delivered the same, in the order that was promised."""

from contextlib import suppress
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pluribus.core.errors import Excluded
from pluribus.core.ports import Address
from pluribus.group.channel import Channel
from pluribus.group.dispatch import Dispatch
from pluribus.sim.checkers.delivery import fifo, integrity
from pluribus.sim.checkers.orders import causal
from pluribus.sim.checkers.totals import excluded, reported, safe, total
from pluribus.sim.checkers.views import converged, one_primary, sent_by_members, view_agreement, view_synchrony
from pluribus.sim.machinery.history import Happening, History
from pluribus.sim.machinery.observer import Observer
from pluribus.wire.bodies import BYTES
from tests.harness import Medium, Member

STACK = "transport | detector | reliable | membership | causal | total | groups"
GROUP = "x"
SETTLED_S = 25.0
"""Longer than any time-out of the protocols: whoever reaches each other is together then."""
CHECKERS = (
    integrity,
    fifo,
    causal,
    total,
    safe,
    excluded,
    view_agreement,
    view_synchrony,
    sent_by_members,
    one_primary,
)


class Person(Member):
    """A member of one group that reads everything at once."""

    def __init__(self, medium: Medium, name: str, promises: str, history: History) -> None:
        super().__init__(medium, name, STACK)
        self.history = history
        self.promises = promises
        self.alive = True
        self.dispatch: Dispatch = self.layer(Dispatch)
        self.count = 0
        Observer(SimpleNamespace(me=self.me, _dispatch=self.dispatch), [GROUP], medium.clock.now, history.add)
        self.start()
        self.channel: Channel = self.dispatch.join(GROUP, promises=promises)

    @property
    def view(self) -> tuple[int, ...]:
        return self.dispatch.view.members

    @property
    def name_of_view(self) -> tuple[int, int]:
        return (self.dispatch.view.number, self.dispatch.view.leader)

    def send(self) -> None:
        channel, out = self.channel, self.channel.out
        body = f"{self.name}/{self.count}".encode()
        stopped = channel.closed or channel.paused or channel.blocked or self.dispatch.blocked
        if stopped or self.me not in channel.view or not out.fits(BYTES, len(body)):
            return
        self.count += 1
        if not out.pending:
            self.dispatch.opened(channel)
        number = out.add(BYTES, body)
        self.history.add(Happening(self.medium.clock.now(), self.me, "send", GROUP, (self.me, number), body))

    def read(self) -> None:
        while self.channel.inbox:
            with suppress(Excluded):
                list(self.channel.take())
        self.dispatch.consumed(self.channel)

    def die(self) -> None:
        self.alive = False
        self.crash()


class ViewsMachine(RuleBasedStateMachine):
    """Members start, crash, are parted and joined, and send; time goes on in between."""

    @initialize(promises=st.sampled_from(["fifo", "causal", "total", "total safe"]), count=st.integers(1, 4))
    def begin(self, promises: str, count: int) -> None:
        self.medium = Medium()
        self.history = History()
        self.promises = promises
        self.people: list[Person] = []
        self.sides: dict[str, int] = {}
        self.loss = 0.0
        self.chance = Random(count)
        self.medium.lose = self.lost
        for _ in range(count):
            self.start()

    def lost(self, data: bytes, source: Address, target: Address) -> bool:
        apart = self.sides.get(source[0], 0) != self.sides.get(target[0], 0)
        return apart or (self.loss > 0 and self.chance.random() < self.loss)

    @property
    def alive(self) -> list[Person]:
        return [person for person in self.people if person.alive]

    def start(self) -> None:
        self.people.append(Person(self.medium, f"m{len(self.people)}", self.promises, self.history))

    @precondition(lambda self: len(self.people) < 6)
    @rule()
    def somebody_starts(self) -> None:
        self.start()

    @precondition(lambda self: len(self.alive) > 1)
    @rule(data=st.data())
    def somebody_crashes(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.alive)).die()

    @rule(sides=st.lists(st.integers(0, 1), min_size=6, max_size=6))
    def the_network_parts(self, sides: list[int]) -> None:
        self.sides = {f"m{number}": side for number, side in enumerate(sides)}

    @rule()
    def the_network_heals(self) -> None:
        self.sides = {}
        self.loss = 0.0

    @rule(messages=st.integers(1, 12), loss=st.sampled_from([0.0, 0.1, 0.3]))
    def all_send(self, messages: int, loss: float = 0.0) -> None:
        """One after another, each having read what came; some of it is lost on the way, and repaired."""
        self.loss = loss
        for _ in range(messages):
            for person in self.alive:
                person.send()
                self.medium.run(0.0005)
                self.everybody_is_sound()

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.5, 2.0]))
    def time_goes_on(self, seconds: float) -> None:
        self.medium.run(seconds)

    @rule()
    def it_settles(self) -> None:
        """The oracle of views: who reaches each other is in one view, with nobody else."""
        self.loss = 0.0
        self.medium.run(SETTLED_S)
        for side in (0, 1):
            component = [person for person in self.alive if self.sides.get(person.name, 0) == side]
            assert len({person.name_of_view for person in component}) <= 1
            for person in component:
                assert sorted(person.view) == sorted(other.me for other in component)
                assert sorted(person.channel.view.members) == sorted(person.view)
        self.all_send(1)

    @invariant()
    def everybody_is_sound(self) -> None:
        for person in getattr(self, "people", []):
            if person.alive:
                person.read()
                person.stack.validate()

    def teardown(self) -> None:
        if not hasattr(self, "people"):
            return
        self.the_network_heals()
        self.it_settles()
        everybody = tuple(sorted(person.me for person in self.alive))
        self.medium.run(1.0)
        self.history.add(Happening(self.medium.clock.now(), 0, "settled", members=everybody))
        for check in (*CHECKERS, converged, reported):
            check(self.history)


ViewsMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=20)
test_views_and_orders_under_every_disorder = pytest.mark.slow(ViewsMachine.TestCase)
