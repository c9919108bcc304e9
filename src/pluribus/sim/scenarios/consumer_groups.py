"""Consumer groups: publishers, and members that share a topic, give back, die and join again, while keepers crash,
disks go bad and the network parts.

The keepers, the line to them and their faults are those of the scenario ``durable-topics``; members are the shipped
``SharedSubscription``. A member may be silent for longer than its lease, and goes on as if nothing had been.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

from ...core.errors import LeaseEnded, NoKeeper, PluribusError, Uncertain, Violation
from ...pubsub.consumer_groups.machine import ConsumerGroup
from ...pubsub.event import KEY
from ...runtime.bus import BEST_EFFORT
from ...runtime.styles.topics.durable import Durable
from ...runtime.styles.topics.follower import DurableSubscription
from ...runtime.styles.topics.shared import SharedSubscription
from ..checkers.consumer_groups import NO_KEY, all_handled, keys_in_order, one_holder, settled_once
from ..checkers.durable_topics import encode, kept, settled
from ..checkers.logs import agreement, one_leader
from ..machinery.chaos import torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario
from .durable_topics import DURABLE_TOPICS, Life, Play, finals_of_all
from .keepers import CALM_S, TORMENT_S, found, settle

TOPIC = "work"
GROUP = "workers"
MEMBERS = 3
KEYS = (NO_KEY, NO_KEY, b"a", b"b")


class Watching(Life):
    """Records what the group hands out and takes back."""

    def __init__(self, play: Play, number: int) -> None:
        super().__init__(play, number)
        self.held: dict[int, int] | None = None

    def group(self) -> ConsumerGroup | None:
        hosted = self.desk.host.named(f"consumers/{GROUP}")
        return hosted.machine if hosted is not None and isinstance(hosted.machine, ConsumerGroup) else None

    def _commit(self, first: int, held: Sequence[bytes]) -> None:
        super()._commit(first, held)
        group = self.group()
        if group is None:
            return
        group.validate()
        now = {
            group.place_of(thing)[1]: number
            for number, consumer in group.demands.consumers.items()
            for thing in consumer.held
        }
        before, self.held = self.held, now
        for offset in before or ():
            if before is not None and now.get(offset) != before[offset]:
                self.play.add(self.number, "back", (offset, self.life), b"")
        for offset, number in now.items():
            if before is not None and before.get(offset) != number:
                self.play.add(self.number, "given", (offset, self.life), b"%d" % number)

    def restored(self, index: int) -> None:
        super().restored(index)
        self.held = None


class GroupPlay(Play):
    topics: ClassVar[tuple[str, ...]] = (TOPIC,)

    async def begin(self, number: int, bus: object = None) -> None:
        before = self.lives.get(number)
        if before is not None:
            before.keeper.stop()
            before.desk.close()
        self.works = [work for work in self.works if not work.done()]
        life = self.lives[number] = Watching(self, number)
        await life.start()

    async def publishes(self, member: int) -> None:
        """Publish events with and without keys, one after another; an uncertain event is published again."""
        random = self.world.random
        durable = self.durable()
        while not self.calm:
            await asyncio.sleep(random.random() * 0.15)
            key = random.choice(KEYS)
            self.events += 1
            body = b"%s %d" % (key, self.events)
            self.told(member, "sent", TOPIC, (0, 0), body)
            headers = None if key == NO_KEY else {KEY: key.decode()}
            try:
                id = await durable.publish(TOPIC, body, headers=headers, timeout=1.0)
            except (Uncertain, NoKeeper):
                durable.abandon()  # it may be there or not; a new publisher goes on
                durable = self.durable()
                continue
            self.told(member, "acked", TOPIC, id, body)
        durable.abandon()

    async def member(self, number: int) -> None:
        """One member of the group: it joins, handles events, commits and gives back. It crashes or leaves, and another
        member takes its place."""
        random = self.world.random
        while not self.done:
            durable = self.durable()
            try:
                await self.life_of(number, durable)
            except PluribusError:
                await asyncio.sleep(0.2)
            if random.random() < 0.5:
                with suppress(PluribusError, TimeoutError):
                    async with asyncio.timeout(CALM_S):
                        await durable.close()
            durable.abandon()

    async def life_of(self, number: int, durable: Durable) -> None:
        random = self.world.random
        events: DurableSubscription[bytes] = durable.subscribe(
            TOPIC, name=GROUP, start="earliest", commit="manual", shared=True, tries=0, ahead=random.randrange(1, 6)
        )
        assert isinstance(events, SharedSubscription)
        await events.open()
        while not self.done:
            try:
                event = await events.receive(timeout=1.0)
            except TimeoutError:
                continue
            assert event.offset is not None
            self.told(number, "handled", TOPIC, (event.offset, event.again), event.body)
            roll = 1.0 if self.calm else random.random()
            if roll < 0.03:
                return
            if roll < 0.05:
                await asyncio.sleep(random.random() * 15)  # longer than the lease, perhaps
            with suppress(LeaseEnded):
                if roll < 0.15:
                    await events.give_back(event)
                else:
                    await events.commit(event)
                    self.told(number, "settled_one", TOPIC, (event.offset, 0), b"")

    def left(self) -> int:
        """Events that are not settled, in the state of the keeper that has applied most."""
        life = max(self.lives.values(), key=lambda one: one.keeper.applied)
        assert isinstance(life, Watching)
        group = life.group()
        end = life.desk.of_topics.topics.bounds.get(TOPIC, (0, 0))[1]
        return end if group is None else sum(one.open for one in group.standing().positions) + end - group.seen(TOPIC)


async def play(world: World, history: History) -> None:
    playing = GroupPlay(world, history)
    playing.keeps_all = False
    for number in range(len(world.hosts)):
        await playing.begin(number)
    await found(playing)
    await settle(playing)
    tasks = [asyncio.create_task(playing.publishes(number)) for number in (1, 2)]
    tasks.append(asyncio.create_task(playing.replacing()))
    members = [asyncio.create_task(playing.member(10 + number)) for number in range(MEMBERS)]
    if playing.churns:
        await playing.churn()
    await torment(world, 0.0 if playing.churns else TORMENT_S, playing.begin, 0.3, playing.faults())
    playing.calm = True
    _, late = await asyncio.wait(tasks, timeout=CALM_S)
    if late:
        raise Violation(f"{len(late)} clients still wait {CALM_S:g} s after the last fault")
    for task in tasks:
        task.result()
    finals = await finals_of_all(playing)
    until = world.now + 2 * CALM_S
    while playing.left():
        if world.now > until:
            raise Violation(f"{playing.left()} events are not settled {2 * CALM_S:g} s after the last fault")
        await asyncio.sleep(0.2)
    playing.done = True
    await asyncio.wait(members, timeout=2 * CALM_S)
    for task in members:
        task.result()
    for life, final in zip(playing.lives.values(), finals, strict=True):
        life.keeper.validate()
        playing.add(life.number, "final", (life.keeper.applied, life.life), encode(final))
        life.keeper.stop()
        life.desk.close()
    await asyncio.gather(*playing.works, return_exceptions=True)
    history.add(Happening(world.now, 0, "settled", members=tuple(playing.lives)))


CONSUMER_GROUPS = Scenario(
    "consumer-groups",
    "members share a durable topic, give back and die, under crashes, bad disks, partitions and lost answers",
    BEST_EFFORT,
    play,
    {
        "agreement": agreement,
        "one_leader": one_leader,
        "kept": kept,
        "all_handled": all_handled,
        "settled_once": settled_once,
        "one_holder": one_holder,
        "keys_in_order": keys_in_order,
        "settled": settled,
    },
    DURABLE_TOPICS.faults,
    members_min=3,
    members_max=6,
)
