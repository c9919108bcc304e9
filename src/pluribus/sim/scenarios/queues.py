"""Queues under faults: senders, consumers that come and die, selectors, keys, delays, dead letters, on keepers that
crash, whose disks tear and forget rows, and whose clocks differ.

Two queues, so that messages can also move from one to the other in transactions. Every assignment and settlement is
recorded when a keeper applies it, and so is every answer to a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ...core.errors import Damaged, PluribusError, Violation
from ...filters import parse
from ...filters.packed import packed
from ...group.host import words as host_words
from ...group.host.machine import Machine
from ...group.keepers import Settings as KeeperSettings
from ...queues import words
from ...queues.batch import BatchExtra, bodies_of, head_of, pack
from ...queues.machine import Queue
from ...queues.words import AGAIN, BACK, DONE, ENDED, FULL, NACK, NEXT, REJECT, Attach, Configure, Redrive, Settings
from ...runtime.bus import BEST_EFFORT
from ..checkers.hosts import bounded, same_states, time_never_falls
from ..checkers.logs import agreement, one_leader
from ..checkers.queues import (
    delayed,
    first_come,
    keys_in_order,
    nothing_invented,
    nothing_lost,
    one_holder,
    settled_once,
)
from ..machinery.chaos import torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario, hosts
from .keepers import CALM_S, SETTINGS, TORMENT_S, found, settle

LEASE_US = 2_000_000
CONSUMERS = 4
KEYS = ("", "", "", "a", "b", "c")
WHERES = ("", "", "", "region = 'eu'", "region LIKE 'e%' AND n >= 0")
S = 1_000_000

_encode = msgspec.msgpack.encode


class Sent(msgspec.Struct, array_like=True):
    """What a sender gives with a message, besides the body."""

    number: int
    key: str
    delay_us: int
    ttl_us: int
    queue: str
    thing: int = -1


class Life(hosts.Life):
    """A keeper that records what its queues hand out and take back."""

    def __init__(self, play: Play, number: int) -> None:
        super().__init__(play, number)
        self.held: dict[str, dict[int, tuple[int, int]]] = {}
        self.dead: set[int] = set()
        """Dead letters of the queue that has consumers."""

    def _commit(self, first: int, held: Sequence[bytes]) -> None:
        super()._commit(first, held)
        for name, queue in self.queues():
            self._compare(name, queue, len(held) == 1)
            if name == "orders":
                self._look_for_dead(queue)

    def queues(self) -> list[tuple[str, Queue]]:
        all_hosted = self.hosting.machines.values()
        return [(one.name, one.machine) for one in all_hosted if isinstance(one.machine, Queue)]

    def queue(self, name: str) -> Queue | None:
        one = self.hosting.named(name)
        return one.machine if one is not None and isinstance(one.machine, Queue) else None

    def restored(self, index: int) -> None:
        super().restored(index)
        self.held = {}

    def _look_for_dead(self, queue: Queue) -> None:
        """A command that ends the leases of several consumers may hand a message out, take it back and bury it."""
        for thing in queue.messages.dead.keys() - self.dead:
            self.play.add(self.number, "buried", (thing, self.life), b"")
        self.dead = set(queue.messages.dead)

    def _compare(self, name: str, queue: Queue, alone: bool) -> None:
        """Compare a queue before and after. ``alone``: only one command was applied, so a message that is ready now was
        ready when the queue handed others out."""
        before = self.held.get(name)
        now = {
            thing: (number, held.delivery)
            for number, consumer in queue.demands.consumers.items()
            for thing, held in consumer.held.items()
        }
        self.held[name] = now
        if before is None or before == now:  # after a restart: what was handed out before is written down already
            return
        for thing in before:
            if now.get(thing) != before[thing]:
                self.play.add(self.number, "back", (thing, self.life), name.encode())
        for thing, (number, delivery) in now.items():
            if before.get(thing) != (number, delivery):
                at = queue.messages.segments.find(thing)
                assert at is not None
                waited = queue.ground.now_us - at[0].at_us_of(at[1])
                body = _encode((name, number, delivery, at[0].key_of(at[1]), waited, at[0].tries_of(at[1])))
                self.play.add(self.number, "given", (thing, self.life), body)
                ready = queue.messages.segments.first_ready()
                if alone and ready is not None and number not in queue.selectors:
                    first = (-ready[2], ready[0].thing_at(ready[1]))
                    if first < (-at[0].priority_of(at[1]), thing):
                        self.play.add(self.number, "overtook", (thing, first[1]), name.encode())


class ShortSighted(Queue):
    """Looks at few messages within a command, and has the others searched outside of it, as a long queue has."""

    scan_now: ClassVar[int] = 4


class Play(hosts.Play):
    lives: dict[int, Life]  # type: ignore[assignment]
    codes: ClassVar[dict[str, type[Machine]]] = {"queue": Queue}
    machines: ClassVar[tuple[tuple[str, str], ...]] = (("orders", "queue"), ("done", "queue"))
    late_kind: ClassVar[str] = "queue"
    settings: ClassVar[KeeperSettings] = SETTINGS
    validates: ClassVar[int] = 16
    at_last: ClassVar[str] = ""
    """The selector of those who empty the queue at the end."""

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self._numbers = 0
        self._transactions = 0
        self._settlements = 0
        self._changes = 0
        """How often the queue was paused or resumed, as far as the operator knows."""
        self._senders = 0
        """Senders that may still send: a message may be confirmed long after the last fault."""

    async def begin(self, number: int, bus: Any = None) -> None:
        life = self.lives[number] = Life(self, number)
        await life.start()

    async def create(self) -> None:
        await super().create()
        tries = self.world.random.choice((3, 10))
        lease_us = self.world.random.choice((0, 3 * S))
        settings = Settings(
            count_max=500, tries_max=tries, backoff_us=S // 4, backoff_us_max=S, window_us=0, lease_us=lease_us
        )
        for name, _ in self.machines:
            await self.ordered(name, words.encode(Configure(settings)))

    async def told(self, queue: str, command: words.Command | bytes) -> words.Outcome:
        data = command if isinstance(command, bytes) else words.encode(command)
        outcome = await self.ordered(queue, data)
        assert isinstance(outcome, words.Outcome), outcome
        return outcome

    # Sending.

    def _messages(self, count: int, plain: bool) -> tuple[list[Sent], list[bytes], BatchExtra | None]:
        random = self.world.random
        sent, extra = [], BatchExtra([], [], [], [], [], [], [], [], [])
        for _ in range(count):
            self._numbers += 1
            key = "" if plain else random.choice(KEYS)
            delay_us = 0 if plain or random.random() < 0.8 else random.choice((S // 2, 2 * S))
            ttl_us = 0 if plain or random.random() < 0.9 else 3 * S
            sent.append(Sent(self._numbers, key, delay_us, ttl_us, "orders"))
            region = random.choice(("eu", "us", ""))
            extra.priorities.append(random.choice((4, 4, 9, 0)))
            extra.keys.append(key)
            extra.delays_us.append(delay_us)
            extra.ttls_us.append(ttl_us)
            extra.properties.append(_encode({"region": region, "n": self._numbers}) if region else b"")
        bodies = [b"message %06d" % one.number * random.choice((1, 1, 5)) for one in sent]
        return sent, [body[:14] for body in bodies] if plain else bodies, None if plain else extra

    async def sends(self, session: int) -> None:
        random = self.world.random
        sequence = 1
        self._senders += 1
        while not self.calm:
            await asyncio.sleep(random.random() * 0.2)
            plain = random.random() < 0.4
            sent, bodies, extra = self._messages(
                40 if plain and random.random() < 0.5 else random.choice((1, 3)), plain
            )
            command = pack(session, sequence, 0, 0, bodies, extra)
            for one in sent:
                self.add(session, "sending", (one.number, 0), _encode(one))
            while True:
                outcome = await self.told("orders", command)
                if outcome.status in (DONE, AGAIN):
                    break
                assert outcome.status in (FULL, NEXT), outcome
                await asyncio.sleep(0.2)
            sequence += len(sent)
            for at, one in enumerate(sent):
                one.thing = outcome.number + at if outcome.number >= 0 else -1
                self.add(session, "sent", (one.number, one.thing), _encode(one))
        self._senders -= 1

    # Receiving.

    async def consumer(self, name: int) -> None:
        """Attach, work for a while, and crash or leave; another consumer takes its place."""
        random = self.world.random
        number = 1_000 * name
        while not self.calm or self._left():
            number += 1
            where = self.at_last if self.calm else random.choice(WHERES)
            selector = packed(parse(where)) if where else b""
            until = self.world.now + 1 + random.random() * 8
            epoch = (await self.told("orders", Attach(number, number, LEASE_US, selector))).number
            serial = 0
            while self.world.now < until or (self.calm and not where):
                serial += 1
                credit = random.randrange(1, 9)
                want = words.Settle(number, epoch, serial=serial, things_max=credit, bytes_max=10_000)
                if (await self.told("orders", want)).status == ENDED:
                    break
                self._renew(number)
                for thing, delivery, body in await self._told("orders", number, epoch):
                    self._renew(number)
                    if not await self.handle(number, epoch, thing, delivery, body):
                        break
                if random.random() < 0.1:
                    epoch = (await self.told("orders", Attach(number, number, LEASE_US, selector))).number
                    serial = 0
                await asyncio.sleep(0.02 + random.random() * 0.1)
                if self.calm and not self._left():
                    break
            if random.random() < 0.5:
                await self.told("orders", words.Detach(number))

    def _renew(self, owner: int) -> None:
        for life in self.lives.values():
            hosted = life.hosting.named("orders")
            if life.up and hosted is not None:
                life.keeper.alive([(hosted.number, owner)])

    async def handle(self, number: int, epoch: int, thing: int, delivery: int, body: bytes) -> bool:
        """Handle a message; returns True if the consumer is still attached."""
        random = self.world.random
        self.add(number, "told", (thing, delivery), body)
        if random.random() < 0.05:
            await asyncio.sleep(random.random())
        roll = 1.0 if self.calm else random.random()
        if roll < 0.08:
            verb = random.choice((NACK, BACK, REJECT))
            others = [(thing, verb, random.choice((0, S // 2)), "no")]
            if verb == REJECT:
                self.add(number, "rejecting", (thing, delivery), body)
            command = words.Settle(number, epoch, [], others, deliveries=[delivery])
            return (await self.told("orders", command)).status != ENDED
        if roll < 0.14:
            return await self.move(number, epoch, thing, delivery, body)
        self.add(number, "settling", (thing, delivery), body)
        outcome = await self.settle(words.Settle(number, epoch, [(thing, 1)], deliveries=[delivery]))
        if outcome.status == DONE and not outcome.lost:
            self.add(number, "acknowledged", (thing, delivery), body)
        return outcome.status != ENDED

    async def settle(self, command: words.Settle) -> words.Outcome:
        """Settle messages. If the first answer was uncertain, a second one may say *lost*: the settlement was done."""
        return await self.told("orders", command)

    async def move(self, number: int, epoch: int, thing: int, delivery: int, body: bytes) -> bool:
        """Take a message and put it into the other queue, in one transaction."""
        self._transactions += 1
        command = words.encode(words.Settle(number, epoch, [(thing, 1)], deliveries=[delivery]))
        session = 50_000 + self._transactions
        parts = [(1, [command]), (2, [pack(session, 1, 0, 0, [body])])]
        self.add(number, "settling", (thing, delivery), body)
        together = host_words.Together(40_000 + number, self._transactions, 0, parts)
        outcome = await self.ordered("", host_words.encode(together))
        if outcome.status in (host_words.DONE, host_words.AGAIN):
            self.add(number, "moved", (thing, delivery), body)
        else:
            self.add(number, "stayed", (thing, delivery), body)
        return True

    async def _told(self, name: str, number: int, epoch: int) -> list[tuple[int, int, bytes]]:
        """Read assignments from the keeper to which the consumer is connected: messages, deliveries, bodies."""
        up = [life for life in self.lives.values() if life.up and life.queue(name) is not None]
        if not up:
            return []
        life = self.world.random.choice(up)
        queue = life.queue(name)
        assert queue is not None
        given = queue.demands.given(number, epoch, 0) or []
        stood = queue.ask(words.encode(words.Where([thing for thing, _ in given])))
        try:
            async with asyncio.timeout(hosts.READ_S):
                bodies = await life.bodies(name, [(row, place, piece) for _, row, place, piece, _ in stood])
        except (PluribusError, TimeoutError):
            return []
        return [
            (thing, held.delivery, body_of(one))
            for (thing, held), one in zip(given, bodies, strict=True)
            if one is not None
        ]

    def _left(self) -> bool:
        """True if messages are in the queue, or may still come; dead letters are redriven."""
        queues = [life.queue("orders") for life in self.lives.values() if life.up]
        left = [one is None or one.messages.count or one.messages.dead for one in queues]
        return bool(self._senders) or any(left) or not left

    async def redriver(self) -> None:
        """Redrive dead letters at the end, when no message is rejected any more."""
        random = self.world.random
        while not self.calm:
            await asyncio.sleep(1 + random.random() * 4)
            await self.pause(random.random() < 0.3)
            if random.random() < 0.5:
                await self._redrive()
        await self.pause(False)
        while (await self._redrive()).number or self._left():  # noqa: ASYNC110 - keepers change without telling
            await asyncio.sleep(0.2)

    async def pause(self, paused: bool) -> None:
        while (outcome := await self.told("orders", words.Pause(paused, self._changes))).status == NEXT:
            self._changes = outcome.number

    async def _redrive(self) -> words.Outcome:
        self.add(0, "redriving", (0, 0), b"")
        return await self.told("orders", Redrive(1_000))


class SearchingPlay(Play):
    codes: ClassVar[dict[str, type[Machine]]] = {"queue": ShortSighted}
    at_last: ClassVar[str] = "priority >= 0"


def body_of(one: bytes) -> bytes:
    return bytes(bodies_of(one, head_of(one))[0])


async def play(world: World, history: History) -> None:
    playing = (SearchingPlay if world.seed % 5 == 1 else Play)(world, history)
    for number in range(len(world.hosts)):
        await playing.begin(number)
    await found(playing)
    await playing.create()
    acting = [playing.sends(10_000), playing.sends(10_001), playing.upgrade(), playing.operator()]
    acting += [playing.redriver()]
    acting += [playing.consumer(number) for number in range(1, CONSUMERS + 1)]
    tasks = [asyncio.create_task(one) for one in acting]
    if playing.churns:
        await playing.churn()
    await torment(world, 0.0 if playing.churns else TORMENT_S, playing.begin, 0.3, playing.faults())
    if playing.late_with_code >= 0:
        playing.upgraded = True
        number = playing.late_with_code
        if playing.lives[number].keeper.seat.halted:
            world.crash(number)
            await playing.begin(number, await world.restart(number))
    playing.calm = True
    _, late = await asyncio.wait(tasks, timeout=3 * CALM_S)
    if late:
        left = [life.queue("orders") for life in playing.lives.values()]
        how = [one.ask(words.encode(words.Count())) for one in left if one is not None][:1]
        raise Violation(f"{len(late)} clients still wait {3 * CALM_S:g} s after the last fault: {how}")
    for task in tasks:
        task.result()
    await settle(playing)
    await asyncio.sleep(5)  # what is dead is freed, a little at a time
    await settle(playing)
    for number, life in playing.lives.items():
        life.keeper.validate()
        life.hosting.validate()
        names, _ = life.hosting.freeze(())
        state = [(name, life.hosting.whole_part(name)) for name in names]
        life.hosting.thaw(False)
        playing.add(number, "final", (0, 0), _encode((state, ([], []), {})))
        playing.add(number, "stored", hosts.stored(life), b"")
        playing.add(number, "differed", (life.keeper.differed, 0), b"")
    for number, life in playing.lives.items():  # afterwards: it takes time, in which states change
        for body in await bodies_left(life, "done"):
            playing.add(number, "done", (0, number), body)
    playing.done = True
    history.add(Happening(world.now, 0, "settled", members=tuple(playing.lives)))


async def bodies_left(life: Life, name: str) -> list[bytes]:
    """The body of every message that is in a queue at the end."""
    queue = life.queue(name)
    assert queue is not None
    for _ in range(100):
        seen = queue.ask(words.encode(words.Look(0, 65_536))).found
        try:
            bodies = await life.bodies(name, [(one.row, one.place, one.piece) for one in seen])
        except Damaged:
            await asyncio.sleep(0.1)
            continue
        if None not in bodies:
            return [body_of(one) for one in bodies if one is not None]
        await asyncio.sleep(0.1)
    raise Violation(f"bodies of {name!r} cannot be read at keeper {life.number}")


QUEUES = Scenario(
    name="queues",
    about="messages are sent, handed out, given back, settled, moved, buried and redriven while keepers fail",
    stack=BEST_EFFORT,
    play=play,
    checkers={
        "agreement": agreement,
        "one_leader": one_leader,
        "nothing_lost": nothing_lost,
        "nothing_invented": nothing_invented,
        "settled_once": settled_once,
        "one_holder": one_holder,
        "keys_in_order": keys_in_order,
        "delayed": delayed,
        "first_come": first_come,
        "same_states": same_states,
        "time_never_falls": time_never_falls,
        "bounded": bounded,
    },
    faults=hosts.HOSTS.faults,
    members_min=3,
    members_max=hosts.HOSTS.members_max,
)
