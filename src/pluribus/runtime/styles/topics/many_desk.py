"""Answers of keepers about many durable topics at once (``pubsub.durable.many``). A part of a keeper's desk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ....core.errors import BadInput
from ....pubsub.durable import commands
from ....pubsub.durable.batch import StoredBatch, checked
from ....pubsub.durable.commands import Outcome
from ....pubsub.durable.many import AtMany, DoMany, FetchedMany, FetchMany
from ....pubsub.durable.reading import READ_BYTES_MAX
from ....pubsub.durable.sweep import Found, Sweep
from .desk import TopicsDesk

STEP_BYTES = 512 << 10
"""Events that are looked at before other tasks have a turn."""
TURN_RANGES = 1_000
"""Ranges that are looked up before other tasks have a turn."""
STEPS_MAX = 128
"""Events after which an answer is given, even if a filter found nothing."""


class ManyDesk:
    def __init__(self, topics: TopicsDesk) -> None:
        self._desk = topics

    def questions(self) -> Mapping[type, Callable[[Any], Any]]:
        return {FetchMany: self._fetch, DoMany: self._do, AtMany: self._at}

    def stats(self) -> dict[str, Any]:
        return {}

    async def _do(self, asked: DoMany) -> list[Outcome]:
        for command in asked.commands:
            found = commands.command_of(command)
            if isinstance(found, commands.Stage):
                checked(found.packed)
        return await self._desk.submit(asked.commands) if asked.commands else []

    async def _at(self, asked: AtMany) -> list[int]:
        await self._desk.barrier()
        found: list[int] = []
        for topic in asked.topics:
            found.append(self._desk.reading.offset_at(topic, asked.time_us))
            await asyncio.sleep(0)  # each may go through a span of its topic
        return found

    async def _fetch(self, asked: FetchMany) -> FetchedMany:
        if len({topic for topic, _, _ in asked.ranges}) != len(asked.ranges):
            raise BadInput("a topic is asked for twice in one request: ask for one range of each")
        answer = await self._swept(asked)
        if not answer.pieces and answer.ended:  # nothing found: is there none, or is this keeper behind?
            await self._desk.barrier()
            answer = await self._swept(asked)
        return answer

    async def _swept(self, asked: FetchMany) -> FetchedMany:
        desk = self._desk
        reading = desk.reading
        sweep = Sweep(reading)
        for number, wanted in enumerate(asked.ranges, 1):
            sweep.want(*wanted)
            if number % TURN_RANGES == 0:
                await asyncio.sleep(0)
        pieces: list[Found] = []
        size, bytes_max = 0, min(max(asked.bytes_max, 1), READ_BYTES_MAX)
        for _ in range(STEPS_MAX):
            if sweep.done or size >= bytes_max:
                break
            for found in self._kept(sweep.step(STEP_BYTES), asked):
                pieces.append(found)
                size += len(found[2])
            await asyncio.sleep(0)
            if desk.reading is not reading:  # the state was replaced: what was read is right, the rest is asked again
                break
        return FetchedMany(pieces, [*sweep.left, *sweep.short], sweep.gone, desk.log, sweep.done and bool(sweep.short))

    def _kept(self, found: list[Found], asked: FetchMany) -> list[Found]:
        if not asked.where and asked.bodies:
            return found
        kept: list[Found] = []
        for number, offset, packed in found:
            _, start, stop = asked.ranges[number]
            chosen = self._desk.chosen(StoredBatch(packed, offset).cut(start, stop), asked.where, asked.bodies)
            if chosen is not None:
                kept.append((number, offset, chosen.data))
        return kept
