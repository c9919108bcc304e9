"""Topics as benchmark processes: one member publishes, every subscriber reads everything, as ``exchange`` does it with
a group.

A case may spread the events over several topics, add subscribers that want none of them, or give the subscriber a
condition. An event counts when every subscriber's program has read its body, sender, id and topic; a lost one fails the
run.
"""

from __future__ import annotations

import asyncio
import random
from time import perf_counter, process_time
from typing import Any

import msgspec

import pluribus

from ..runtime.styles.topics.subscription import Subscription
from .exchange import BLOCK, SECONDS, WARM_S, Answer, Case, Measured, Tick, Warm, body_of
from .limits import ANSWER_S
from .members import WARM_ROUNDS
from .processes import Together, measure, quiet

JOIN_S = 40.0
PING, PONG = "bench/ping", "bench/pong"


class Flow(msgspec.Struct, frozen=True):
    """A flow: events of a size, under so many topics in turn, to so many subscribers."""

    size: int = 100
    subscribers: int = 1
    topics: int = 1
    typed: bool = False
    where: str = ""
    seconds: float = SECONDS

    def __str__(self) -> str:
        words = [f"1→{self.subscribers} {self.size} B"]
        words += [f"{self.topics} topics"] if self.topics > 1 else []
        words += ["typed"] if self.typed else []
        words += [f"where {self.where}"] if self.where else []
        return ", ".join(words)


def stream(flow: Flow) -> Measured:
    """Run one case, each member in a process of its own, on a new multicast bus of this machine."""
    url = f"multicast://bench-{random.getrandbits(40):x}"
    roles = [(_member, (flow, url, rank)) for rank in range(flow.subscribers + 1)]
    answers: list[Answer] = measure(roles, len(roles))
    took_s = max(answer.finished for answer in answers) - min(answer.started for answer in answers)
    reading = [answer for answer in answers if answer.received]
    (sending,) = [answer for answer in answers if answer.sent]
    return Measured(
        min(answer.received for answer in reading) / took_s,
        sending.cpu_s / sending.sent * 1e6,
        sum(answer.cpu_s for answer in reading) / sum(answer.received for answer in reading) * 1e6,
    )


def _member(together: Together, flow: Flow, url: str, rank: int) -> None:
    quiet()
    pluribus.run(_publish(together, flow, url) if rank == 0 else _subscribe(together, flow, url))


async def _everybody(bus: pluribus.Bus, members: int) -> None:
    """Returns when all members publish or subscribe: a member that comes later misses earlier events."""
    group = (await bus.pubsub.base()).group
    await group.wait_for(members, timeout=JOIN_S)


async def _publish(together: Together, flow: Flow, url: str) -> None:
    body = body_of(Case(size=flow.size, typed=flow.typed))
    topics = [f"bench/{number}" for number in range(flow.topics)]
    async with pluribus.connect(url, name="publisher") as bus:
        await _everybody(bus, flow.subscribers + 1)
        await asyncio.to_thread(together.wait)
        sent, started = 0, perf_counter()
        while perf_counter() - started < WARM_S:
            await _send(bus, topics, body, BLOCK)
            sent += BLOCK
        count = max(int(sent / (perf_counter() - started) * flow.seconds), BLOCK)
        await bus.publish("warm", Warm(count))
        await asyncio.to_thread(together.wait)
        cpu_s, started = process_time(), perf_counter()
        await _send(bus, topics, body, count)
        await bus.flush()
        together.answer(Answer(started, perf_counter(), process_time() - cpu_s, count, 0))
        await asyncio.to_thread(together.wait)


async def _send(bus: pluribus.Bus, topics: list[str], body: Any, count: int) -> None:
    publish = bus.publish
    if len(topics) == 1:
        (topic,) = topics
        for _ in range(count):
            await publish(topic, body)
        return
    left = count
    while left > 0:
        for topic in topics[:left]:
            await publish(topic, body)
        left -= len(topics)


async def _subscribe(together: Together, flow: Flow, url: str) -> None:
    where, kind = flow.where or None, Tick if flow.typed else None
    async with (
        pluribus.connect(url, name="subscriber") as bus,
        bus.subscribe("bench/+", where=where, type=kind) as events,
        bus.subscribe("warm") as warm,
    ):
        await _everybody(bus, flow.subscribers + 1)
        await asyncio.to_thread(together.wait)
        reading = asyncio.create_task(_read(events, -1))
        count = (await warm.receive()).body.count
        reading.cancel()
        while events.waiting:
            await events.receive_many()
        await asyncio.to_thread(together.wait)
        cpu_s, started = process_time(), perf_counter()
        await _read(events, count)
        together.answer(Answer(started, perf_counter(), process_time() - cpu_s, 0, count))
        await asyncio.to_thread(together.wait)


async def _read(events: Subscription[Any], count: int) -> None:
    got = 0
    async for event in events:
        event.body  # noqa: B018 - reading them is part of what is measured
        event.sender  # noqa: B018
        event.id  # noqa: B018
        event.topic  # noqa: B018
        got += 1
        if got == count:
            break


def topic_trips(rounds: int, size: int, pace_s: float) -> list[float]:
    """The round trips in µs of an event of one topic that is answered on another, one at a time at a steady pace."""
    url = f"multicast://bench-{random.getrandbits(40):x}"
    return list(measure([(_echoing, (url,)), (_pinging, (url, rounds, size, pace_s))], 1)[0])


def _echoing(together: Together, url: str) -> None:
    async def main() -> None:
        async with pluribus.connect(url, name="echo") as bus, bus.subscribe(PING) as events:
            await _everybody(bus, 2)
            await asyncio.to_thread(together.wait)
            async for event in events:
                await bus.publish(PONG, event.body)

    pluribus.run(main())


def _pinging(together: Together, url: str, rounds: int, size: int, pace_s: float) -> None:
    async def main() -> None:
        async with pluribus.connect(url, name="ping") as bus, bus.subscribe(PONG) as events:
            await _everybody(bus, 2)
            await asyncio.to_thread(together.wait)
            body, trips = b"x" * size, []
            for _ in range(WARM_ROUNDS + rounds):
                started = perf_counter()
                await bus.publish(PING, body)
                await events.receive(timeout=ANSWER_S)
                trips.append((perf_counter() - started) * 1e6)
                await asyncio.sleep(max(0.0, pace_s - (perf_counter() - started)))
            together.answer(trips[WARM_ROUNDS:])

    pluribus.run(main())
