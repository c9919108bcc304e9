"""Durable topics: publishers, a subscriber and a writer of batches, while keepers crash, disks go bad and the network
parts. Answers get lost, clients die and come again; retention removes.

The keepers are those of the scenario ``keepers``, with its faults. What applications use is the shipped code of the
runtime: ``Durable``, its publishers and subscriptions, and the ``KeeperDesk``; only the line between them is the
world's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from ...core.errors import Closed, NoKeeper, PluribusError, Refused, Uncertain, Violation
from ...group.host import Host
from ...group.keepers import Keeper
from ...pubsub.durable import commands
from ...pubsub.durable.batch import StoredBatch, pack
from ...pubsub.durable.requests import Put, Request
from ...runtime.bus import BEST_EFFORT, Bus
from ...runtime.keepers.desk import KeeperDesk
from ...runtime.styles.topics.durable import Durable
from ...runtime.styles.topics.follower import DurableSubscription
from ...runtime.styles.topics.publisher import Ended
from ..checkers.durable_topics import SHORT, Finals, atomic, encode, in_order, kept, read, settled
from ..checkers.logs import agreement, one_leader
from ..machinery.chaos import STRIKES, torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario
from .keepers import CALM_S, NAME, PORT, SETTINGS, TORMENT_S, all_applied, found, settle
from .keepers import Life as KeeperLife
from .keepers import Play as KeepersPlay

PUBLISHERS = 3
TOPICS = ("a", SHORT, "sink")
ANSWER_S = 1.5
LOST_ANSWERS = 0.05
LEASE_S = 4.0


class Watched:
    """The state of a host; ``restored`` is told when it is replaced."""

    def __init__(self, host: Host, restored: Callable[[int], None]) -> None:
        self.freeze, self.part, self.thaw = host.freeze, host.part, host.thaw
        self._host = host
        self._restored = restored

    def restore(self, index: int, parts: Iterable[tuple[str, bytes]]) -> None:
        self._host.restore(index, parts)
        self._restored(index)


class Life(KeeperLife):
    """A keeper with a desk, from its start to its crash."""

    def __init__(self, play: Play, number: int) -> None:
        self.play = play
        self.topics = play.topics
        self.number = number
        self.host = play.world.hosts[number]
        self.life = self.host.incarnations
        self.engine = self.host.port(PORT)
        clock, random = self.host.clock(), self.host.random("/keeper")
        wall = lambda: play.world.now  # noqa: E731
        self.keeper = Keeper(NAME, self.host.disk, self, clock, random, SETTINGS, self._report, wall)
        self.desk = KeeperDesk(self.keeper)
        self._apply = self.keeper.on_commit
        self.keeper.on_commit = self._commit
        self.keeper.seat.state = Watched(self.desk.host, self.restored)
        self.keeper.on_role = self._role

    def _commit(self, first: int, held: Sequence[bytes]) -> None:
        for index, command in enumerate(held, first):
            self.play.add(self.number, "apply", (index, self.life), command)
        if self.keeper.leads:
            self.play.add(self.number, "led", (self.keeper.ledger.epoch, self.keeper.id), b"")
        self._apply(first, held)

    def restored(self, index: int) -> None:
        self.play.add(self.number, "restore", (index, self.life), b"")

    async def start(self) -> None:
        await super().start()
        self.desk.tending.start()

    def final(self) -> Finals:
        """All events that the keeper has, read as a subscriber reads them."""
        topics: dict[str, tuple[int, list[tuple[int, int, int, bytes]]]] = {}
        for name in self.topics:
            first, end = self.desk.of_topics.topics.bounds.get(name, (0, 0))
            events: list[tuple[int, int, int, bytes]] = []
            at = first
            while at < end:
                pieces, behind = self.desk.of_topics.reading.read(name, at, end, 1 << 20)
                for offset, packed in pieces:
                    batch = StoredBatch(packed, offset).cut(at, end)
                    numbers = batch.sequences.tolist()
                    rows = zip(batch.offsets.tolist(), numbers, batch.decoded(), strict=True)
                    events += [(place, batch.head.session, number, body) for place, number, body in rows]
                at = behind
            topics[name] = (first, events)
        return Finals(topics)


class Line:
    """A client's line to any keeper that is up. Answers get lost; then the client does not know what was done."""

    def __init__(self, play: Play) -> None:
        self._play = play

    async def ask(self, request: Request) -> Any:
        play = self._play
        up = [life for life in play.lives.values() if life.up]
        if not up:
            raise Closed("nobody is up")
        life = play.world.random.choice(up)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                found = await life.desk.ask(request)
            except PluribusError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done() and (play.calm or play.world.random.random() > LOST_ANSWERS):
                    answer.set_result(found)

        life.host.gate(lambda: play.works.append(asyncio.ensure_future(work())))
        try:
            return await asyncio.wait_for(answer, getattr(request, "wait_s", 0.0) + ANSWER_S)
        except TimeoutError:
            raise Closed("no answer") from None

    def ask_now(self, put: Put, answered: Ended) -> bool:
        return False  # its keepers are elsewhere


class Play(KeepersPlay):
    lives: dict[int, Life]  # type: ignore[assignment]
    topics: ClassVar[tuple[str, ...]] = TOPICS

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self.works: list[asyncio.Future[None]] = []
        self.events = 0
        self.done = False
        """True when publishers have ended: no more events will come."""

    async def begin(self, number: int, bus: Bus | None = None) -> None:
        before = self.lives.get(number)
        if before is not None:
            before.keeper.stop()
            before.desk.close()
        self.works = [work for work in self.works if not work.done()]
        life = self.lives[number] = Life(self, number)
        await life.start()

    def durable(self) -> Durable:
        random, world = self.world.random, self.world
        return Durable(Line(self), 1, lambda: random.getrandbits(62) + 1, lambda: 1e9 + world.now)

    def told(self, member: int, what: str, topic: str, number: tuple[int, int], body: bytes) -> None:
        self.history.add(Happening(self.world.now, member, what, topic, number, body))

    def bodies(self, member: int, topic: str, count: int) -> list[bytes]:
        found = [b"%d-%d" % (member, self.events + place) for place in range(count)]
        self.events += count
        for body in found:
            self.told(member, "sent", topic, (0, 0), body)
        return found

    async def publisher(self, member: int) -> None:
        """Publish single events and batches. Uncertain ones are published again, or given up when the client dies."""
        random = self.world.random
        durable = self.durable()
        while not self.calm:
            await asyncio.sleep(random.random() * 0.1)
            topic = random.choice(TOPICS)
            bodies = self.bodies(member, topic, random.choice((1, 1, 2, 5)))
            try:
                if len(bodies) == 1:
                    ids = [await self.one(durable, topic, bodies[0])]
                elif random.random() < 0.05:
                    for body in bodies:
                        durable.publish_soon(topic, body)
                    durable.abandon()  # it dies with events under way
                    durable = self.durable()
                    continue
                else:
                    ids = list(await durable.publish_many([(topic, body) for body in bodies]))
            except (Uncertain, NoKeeper):
                continue
            for id, body in zip(ids, bodies, strict=True):
                self.told(member, "acked", topic, id, body)
        durable.abandon()

    async def one(self, durable: Durable, topic: str, body: bytes) -> tuple[int, int]:
        try:
            return await durable.publish(topic, body, timeout=0.2)
        except Uncertain as error:
            while True:
                with suppress(Uncertain):
                    return await durable.publish(topic, body, id=error.id)
                if self.calm:
                    raise
            raise

    async def subscriber(self) -> None:
        """Read, record the events, commit. Now and then the subscriber dies, and another one begins under its name."""
        random = self.world.random
        life = 0
        while True:
            events: DurableSubscription[Any] = self.durable().subscribe(
                "a", name="reader", start="earliest", commit="manual", max_bytes=2_000
            )
            with suppress(PluribusError):
                while True:
                    some = await events.receive_many(3)
                    for event in some:
                        assert event.offset is not None
                        self.told(0, "handled", "a", (event.offset, life), event.body)
                    if random.random() < 0.7:
                        await events.commit(some[-1])
                        self.told(0, "committed", "a", ((some[-1].offset or 0) + 1, life), b"")
                    if not self.done and random.random() < 0.03:
                        break
            events.abandon()
            life += 1

    async def writer(self) -> None:
        """Stage parts under attempts, some of which are never committed, and commit batch after batch."""
        random = self.world.random
        durable = self.durable()
        batch = 0
        while not self.calm:
            bodies: list[bytes] = []
            attempts: list[tuple[str, int]] = []
            for task in range(random.randrange(1, 3)):
                attempt = f"{task}-{random.getrandbits(30)}"
                parts = random.randrange(1, 3)
                session = random.getrandbits(62) + 1
                mine = [self.bodies(9, "sink", 2) for _ in range(parts)]
                for part, some in enumerate(mine):
                    await self.stage(durable, batch, attempt, part, session, some)
                    if random.random() < 0.2:
                        lost = [b"orphan-%d" % random.getrandbits(40)]
                        await self.stage(durable, batch, f"{attempt}-lost", 0, session + 1, lost)
                bodies += [body for some in mine for body in some]
                attempts.append((attempt, parts))
            try:
                await self.surely(durable, commands.Publish("writer", batch, attempts))
            except Refused:  # it took so long that the lease was over: all of it again
                continue
            self.told(9, "wrote", "sink", (0, batch), b" ".join(bodies))
            batch += 1
            await asyncio.sleep(0.3 * random.random())
        durable.abandon()

    async def stage(
        self, durable: Durable, batch: int, attempt: str, part: int, session: int, bodies: list[bytes]
    ) -> None:
        at = int(durable.wall() * 1e6)
        packed = pack("sink", session, 1 + 2 * part, 9, 0, [at] * len(bodies), bodies)
        stage = commands.Stage("writer", batch, attempt, part, at, int(LEASE_S * 1e6), packed)
        with suppress(Refused):
            await self.surely(durable, stage)

    async def surely(self, durable: Durable, command: commands.Command) -> None:
        while True:
            try:
                await durable.do(command)
            except Refused:
                raise
            except PluribusError:
                await asyncio.sleep(0.1)
            else:
                return

    async def tidy(self) -> None:
        """The operator: removes old events of topics, to free space."""
        random = self.world.random
        durable = self.durable()
        while not self.calm:
            await asyncio.sleep(0.5 + random.random())
            for life in self.lives.values():
                if life.up and life.keeper.leads:
                    first, end = life.desk.of_topics.topics.bounds.get(SHORT, (0, 0))
                    with suppress(Refused):
                        await self.surely(durable, commands.Forget(SHORT, first + (end - first) // 2))
                    break
        durable.abandon()


async def play(world: World, history: History) -> None:
    playing = Play(world, history)
    playing.keeps_all = False
    for number in range(len(world.hosts)):
        await playing.begin(number)
    await found(playing)
    first = playing.durable()
    (body,) = playing.bodies(0, "a", 1)
    await first.publish("a", body)
    first.abandon()
    await settle(playing)
    acting: list[Coroutine[Any, Any, None]] = [playing.publisher(member) for member in range(1, PUBLISHERS + 1)]
    tasks = [asyncio.create_task(one) for one in (*acting, playing.writer(), playing.tidy(), playing.replacing())]
    reading = asyncio.create_task(playing.subscriber())
    if playing.churns:
        await playing.churn()
    await torment(world, 0.0 if playing.churns else TORMENT_S, playing.begin, 0.3, playing.faults())
    playing.calm = True
    _, late = await asyncio.wait(tasks, timeout=CALM_S)
    if late:
        raise Violation(f"{len(late)} clients still wait {CALM_S:g} s after the last fault")
    for task in tasks:
        task.result()
    playing.done = True
    finals = await finals_of_all(playing)
    await _read_to_the_end(playing, len(finals[0].topics["a"][1]))
    reading.cancel()
    for life, final in zip(playing.lives.values(), finals, strict=True):
        life.keeper.validate()
        life.desk.of_topics.topics.validate()
        playing.add(life.number, "final", (life.keeper.applied, life.life), encode(final))
        life.keeper.stop()
        life.desk.close()
    await asyncio.gather(reading, *playing.works, return_exceptions=True)
    history.add(Happening(world.now, 0, "settled", members=tuple(playing.lives)))


async def finals_of_all(playing: Play) -> list[Finals]:
    """The final state of every keeper, when all have applied the same rows and can read them."""
    until = playing.world.now + CALM_S
    while playing.world.now < until:
        await asyncio.sleep(0.1)
        if all_applied([life.keeper for life in playing.lives.values()]):
            with suppress(PluribusError):
                return [life.final() for life in playing.lives.values()]
    raise Violation(f"keepers differ, or cannot read what they keep, {CALM_S:g} s after the last fault")


async def _read_to_the_end(playing: Play, end: int) -> None:
    until = playing.world.now + CALM_S
    while playing.world.now < until:
        handled = [h.id[0] for h in playing.history.of("handled")]
        if not end or (handled and handled[-1] == end - 1):
            return
        await asyncio.sleep(0.1)
    raise Violation(f"the subscriber did not come to offset {end - 1} in {CALM_S:g} s")


DURABLE_TOPICS = Scenario(
    "durable-topics",
    "durable topics under crashes, bad disks, partitions and lost answers",
    BEST_EFFORT,
    play,
    {
        "agreement": agreement,
        "one_leader": one_leader,
        "kept": kept,
        "in_order": in_order,
        "read": read,
        "atomic": atomic,
        "settled": settled,
    },
    (
        *STRIKES,
        *("unsynced_lost", "torn_write", "bit_flip", "lost_tail", "disk_full", "broken_store", "disk_lost"),
    ),
    members_min=3,
    members_max=6,
)
