"""Compaction: publishers of events with keys; keepers that compact the topic again and again while they crash, disks go
bad and the network parts; readers that read on across the gaps.

The keepers, the line to them and their faults are those of the scenario ``durable-topics``. Stretches are short, so
that one pass has many of them and is interrupted at every place.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import ClassVar

from ...core.errors import NoKeeper, PluribusError, Uncertain, Violation
from ...pubsub.durable import commands, compaction
from ...pubsub.event import KEY
from ...runtime.bus import BEST_EFFORT
from ...runtime.styles.topics.follower import DurableSubscription
from ..checkers.compaction import NO_KEY, last_of_each_key, nothing_else_went, read_onward
from ..checkers.durable_topics import Finals, encode, settled
from ..checkers.logs import agreement, one_leader
from ..machinery.chaos import torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario
from .durable_topics import DURABLE_TOPICS, Play, finals_of_all
from .keepers import CALM_S, TORMENT_S, found, settle

TOPIC = "table"
PUBLISHERS = 3
KEYS = (NO_KEY, b"a", b"a", b"b", b"c", b"d", b"e")
STRETCH_BYTES = 2_000


class CompactionPlay(Play):
    topics: ClassVar[tuple[str, ...]] = (TOPIC,)

    async def publishes(self, member: int) -> None:
        """Publish events with keys, one after another. An uncertain event is given up: it may be in the topic or
        not."""
        random = self.world.random
        durable = self.durable()
        while not self.calm:
            await asyncio.sleep(random.random() * 0.1)
            key = random.choice(KEYS)
            self.events += 1
            body = b"%s %d" % (key, self.events)
            self.told(member, "sent", TOPIC, (0, 0), body)
            headers = None if key == NO_KEY else {KEY: key.decode()}
            try:
                id = await durable.publish(TOPIC, body, headers=headers, timeout=1.0)
            except (Uncertain, NoKeeper):
                durable.abandon()
                durable = self.durable()
                continue
            self.told(member, "acked", TOPIC, id, body)
        durable.abandon()

    async def reads(self) -> None:
        """Read the topic from its beginning to its end, again and again."""
        while not self.done:
            events: DurableSubscription[bytes] = self.durable().subscribe(TOPIC, start="earliest", max_bytes=1_000)
            life = self.world.random.getrandbits(30)
            with suppress(PluribusError, TimeoutError):
                for _ in range(self.world.random.randrange(1, 60)):
                    event = await events.receive(timeout=1.0)
                    assert event.offset is not None
                    self.told(0, "read", TOPIC, (event.offset, life), event.body)
            events.abandon()

    def compacted(self) -> int | None:
        """The end of the topic, if it is compacted up to there."""
        life = max(self.lives.values(), key=lambda one: one.keeper.applied)
        topic = life.desk.of_topics.topics.topic(TOPIC)
        return topic.end if topic is not None and topic.compacted == topic.end else None


async def play(world: World, history: History) -> None:
    whole = compaction.STRETCH_BYTES
    compaction.STRETCH_BYTES = STRETCH_BYTES
    try:
        await _play(world, history)
    finally:
        compaction.STRETCH_BYTES = whole


async def _play(world: World, history: History) -> None:
    playing = CompactionPlay(world, history)
    playing.keeps_all = False
    for number in range(len(world.hosts)):
        await playing.begin(number)
    await found(playing)
    await settle(playing)
    first = playing.durable()
    await playing.surely(first, commands.Retain(TOPIC, keys=True))
    first.abandon()
    tasks = [asyncio.create_task(playing.publishes(number)) for number in range(1, PUBLISHERS + 1)]
    tasks.append(asyncio.create_task(playing.replacing()))
    reading = asyncio.create_task(playing.reads())
    if playing.churns:
        await playing.churn()
    await torment(world, 0.0 if playing.churns else TORMENT_S, playing.begin, 0.3, playing.faults())
    playing.calm = True
    _, late = await asyncio.wait(tasks, timeout=CALM_S)
    if late:
        raise Violation(f"{len(late)} clients still wait {CALM_S:g} s after the last fault")
    for task in tasks:
        task.result()
    until = world.now + CALM_S
    compacted: int | None = None
    finals: list[Finals] = []
    # An event that its publisher gave up may still come while the keepers are read: then another pass is due.
    while compacted is None or playing.compacted() != compacted:
        if world.now > until:
            raise Violation(f"the topic is not compacted {CALM_S:g} s after the last fault")
        await asyncio.sleep(0.2)
        compacted = playing.compacted()
        if compacted is not None:
            finals = await finals_of_all(playing)
    playing.done = True
    await asyncio.wait([reading], timeout=2 * CALM_S)
    for life, final in zip(playing.lives.values(), finals, strict=True):
        life.keeper.validate()
        life.desk.of_topics.topics.validate()
        playing.add(life.number, "final", (life.keeper.applied, life.life), encode(final))
        life.keeper.stop()
        life.desk.close()
    await asyncio.gather(*playing.works, return_exceptions=True)
    history.add(Happening(world.now, 0, "settled", members=tuple(playing.lives)))


COMPACTION = Scenario(
    "compaction",
    "a topic that keeps the last event of each key, under crashes, bad disks, partitions and lost answers",
    BEST_EFFORT,
    play,
    {
        "agreement": agreement,
        "one_leader": one_leader,
        "last_of_each_key": last_of_each_key,
        "nothing_else_went": nothing_else_went,
        "read_onward": read_onward,
        "settled": settled,
    },
    DURABLE_TOPICS.faults,
    members_min=3,
    members_max=6,
)
