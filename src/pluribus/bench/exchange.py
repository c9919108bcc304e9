"""A group with agreed views, as benchmark processes: one member sends, or all do, and every receiver reads everything.

Members use the public API as a user would: ``await send``, ``async for``, reading body, sender and id of each message.
A message counts when every receiver's program has it. A warm-up comes first; it also shows how many messages fill the
time to be measured. All receivers then wait for exactly that many, so one lost message fails the run.

The member that sends alone is not the eldest, because the eldest gives out the numbers of total order, and would have
its own messages at once.
"""

from __future__ import annotations

import asyncio
import random
from time import perf_counter, process_time
from typing import Any

import msgspec

import pluribus

from . import namespaces
from .processes import Together, measure, quiet

GROUP = "bench"
SECRET = "a secret for benchmarks, known to everybody"  # noqa: S105 - nothing is kept with it
JOIN_S = 40.0
SECONDS, WARM_S = 1.5, 0.4
BLOCK = 256
"""Messages between two looks at the clock while warming up."""
ONE, ALL = "one", "all"


class Place(msgspec.Struct, frozen=True):
    """The place of a member: its bus, and its network namespace, if it is another one."""

    url: str
    namespace: str = ""


class Case(msgspec.Struct, frozen=True):
    """A case: sizes, senders and order. ``order`` may be ``safe``, which is total order and safe."""

    order: str = "fifo"
    size: int = 100
    members: int = 2
    senders: str = ONE
    sealed: bool = False
    typed: bool = False
    seconds: float = SECONDS
    stack: str = "views"

    def __str__(self) -> str:
        words = [self.order, *(["encrypted"] if self.sealed else []), *(["typed"] if self.typed else [])]
        who = "all send" if self.senders == ALL else "one sends"
        return f"{' '.join(words)}, {self.size} B, {self.members} members, {who}"


class Measured(msgspec.Struct, frozen=True):
    """Messages a second that every receiver has; and the µs of processor time for one message."""

    rate: float
    sender_us: float
    receiver_us: float


class Answer(msgspec.Struct, frozen=True):
    """The result of one member for the measured part. Clocks of one machine agree between processes."""

    started: float
    finished: float
    cpu_s: float
    sent: int
    received: int


class Tick(msgspec.Struct, frozen=True):
    """A typed body, as an application would have it."""

    symbol: str
    price: float
    volume: int
    note: str


class Warm(msgspec.Struct, frozen=True):
    """The last message of the warm-up: its sender says how many messages would fill the time."""

    count: int


pluribus.register(Tick, "pluribus.bench.Tick")
pluribus.register(Warm, "pluribus.bench.Warm")


def exchange(case: Case, places: list[Place] | None = None) -> Measured:
    """Run one case, each member in a process of its own; by default on a new multicast bus of this machine."""
    if places is None:
        places = [Place(f"multicast://bench-{random.getrandbits(40):x}")] * case.members
    answers: list[Answer] = measure([(_member, (case, place)) for place in places], case.members)
    took_s = max(answer.finished for answer in answers) - min(answer.started for answer in answers)
    sending = [answer for answer in answers if answer.sent]
    reading = [answer for answer in answers if answer.received]
    received = min(answer.received for answer in reading)
    return Measured(
        received / took_s,
        sum(answer.cpu_s for answer in sending) / sum(answer.sent for answer in sending) * 1e6,
        sum(answer.cpu_s for answer in reading) / sum(answer.received for answer in reading) * 1e6,
    )


def body_of(case: Case) -> Any:
    """A body of about this size; a typed one has its fields within it."""
    if not case.typed:
        return b"x" * case.size
    tick = Tick("IBM", 101.25, 1_000, "")
    plain = len(msgspec.msgpack.encode(tick))
    return msgspec.structs.replace(tick, note="x" * max(case.size - plain, 0))


def _member(together: Together, case: Case, place: Place) -> None:
    quiet()
    if place.namespace:
        namespaces.enter(place.namespace)
    pluribus.run(_exchange(together, case, place.url))


async def _exchange(together: Together, case: Case, url: str) -> None:
    async with pluribus.connect(url, stack=case.stack, secret=SECRET if case.sealed else None) as bus:
        rank = await _rank(bus, case.members)
        sends = case.senders == ALL or rank == 1
        safe = case.order == "safe"
        own = case.senders == ALL or not sends
        group = await bus.group(GROUP, order="total" if safe else case.order, safe=safe, own=own)
        await group.wait_for(case.members, timeout=JOIN_S)
        body = body_of(case)
        await asyncio.to_thread(together.wait)
        warmed, counts = await asyncio.gather(
            _warm_up(group, body, case.seconds) if sends else _nothing(),
            _read_warm(group, case.members if case.senders == ALL else 1) if own else _nothing(),
        )
        count = sum(counts) // len(counts) if counts else warmed[0]
        await asyncio.to_thread(together.wait)
        cpu_s, started = process_time(), perf_counter()
        sent, received = count if sends else 0, count * len(counts)
        await asyncio.gather(_send(group, body, sent), _read(group, received))
        together.answer(Answer(started, perf_counter(), process_time() - cpu_s, sent, received))
        await asyncio.to_thread(together.wait)  # nobody leaves before all have everything


async def _rank(bus: pluribus.Bus, members: int) -> int:
    """This member's place in the bus's view, by age, as soon as all members are in the view."""
    async with asyncio.timeout(JOIN_S):
        while len(bus.members) < members:  # noqa: ASYNC110 - the bus has no call to wait for its members
            await asyncio.sleep(0.01)
    return list(bus.members).index(bus.me)


async def _nothing() -> list[int]:
    return []


async def _warm_up(group: pluribus.Group, body: Any, seconds: float) -> list[int]:
    """Send for a while; returns how many messages would fill the time to be measured. The last message says so, too."""
    sent, started = 0, perf_counter()
    while perf_counter() - started < WARM_S:
        for _ in range(BLOCK):
            await group.send(body)
        sent += BLOCK
    count = max(int(sent / (perf_counter() - started) * seconds), BLOCK)
    await group.send(Warm(count))
    return [count]


async def _read_warm(group: pluribus.Group, senders: int) -> list[int]:
    counts: list[int] = []
    async for message in group:
        if type(message.body) is Warm:
            counts.append(message.body.count)
            if len(counts) == senders:
                break
    return counts


async def _send(group: pluribus.Group, body: Any, count: int) -> None:
    for _ in range(count):
        await group.send(body)


async def _read(group: pluribus.Group, count: int) -> None:
    if not count:
        return
    got = 0
    async for message in group:
        message.body  # noqa: B018 - reading them is part of what is measured
        message.sender  # noqa: B018
        message.id  # noqa: B018
        got += 1
        if got == count:
            break
