"""The demonstration: a second process joins the same bus, answers questions, then takes a stream of messages."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from pluribus.core.errors import Unreachable
from pluribus.runtime.bus import Bus, connect
from pluribus.runtime.running import run

QUESTIONS = 200
STREAM_BODY = b"x" * 100
END = "end"


def talk(url: str | None, seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the demonstration and return its summary; ``say`` gets a line for everything worth telling."""
    url = url or os.environ.get("PLURIBUS_URL") or f"multicast://demo-{os.getpid()}"
    code = f"from pluribus.cli.talking import answer; answer({url!r})"
    with subprocess.Popen([sys.executable, "-c", code]) as other:
        try:
            return run(_ask(url, seconds, say))
        finally:
            other.terminate()


def answer(url: str | None) -> None:
    """The other process: echoes questions, counts the stream, and reports the count when it ends."""

    async def main() -> None:
        async with connect(url, name="answerer") as bus:
            questions = await bus.group("questions", own=False)
            stream = await bus.group("stream", own=False)

            async def echo() -> None:
                async for message in questions:
                    await questions.send(message.body, to=message.sender)

            async def count() -> None:
                counted = 0
                async for message in stream:
                    if message.body == END:
                        await stream.send({"counted": counted}, to=message.sender)
                        counted = 0
                    else:
                        counted += 1

            await asyncio.gather(echo(), count())

    run(main())


async def _ask(url: str | None, seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    async with connect(url, name="asker") as bus:
        say(f"I am {bus.me!r}, alone on {bus.url.text}; my stack, top to bottom:")
        for line in bus.describe().splitlines():
            say(f"    {line}")
        try:
            trips = await _questions(bus, say)
        except TimeoutError:
            raise Unreachable(
                "the second process did not join in 10 s: `pluribus doctor` tells what is wrong"
            ) from None
        sent, counted, took = await _stream(bus, seconds)
        say(f"{sent:,} messages of {len(STREAM_BODY)} bytes streamed in {took:.1f} s")
        trip = sorted(trips)[len(trips) // 2]
        published = sent + len(trips)
        delivered = counted + len(trips)
        return {
            "published": published,
            "delivered": delivered,
            "lost": published - delivered,
            "round_trip_us": round(trip * 1e6, 1),
            "rate": round(counted / took),
            "seconds": round(took, 3),
        }


async def _questions(bus: Bus, say: Callable[[str], None]) -> list[float]:
    group = await bus.group("questions", own=False)
    view = await group.wait_for(2)
    for member, name in view.names.items():
        say(f"in the group 'questions': {name} {member!r}")
    trips = []
    for number in range(QUESTIONS):
        started = perf_counter()
        await group.send({"question": number})
        await group.receive(timeout=5)
        trips.append(perf_counter() - started)
    return trips


async def _stream(bus: Bus, seconds: float) -> tuple[int, int, float]:
    group = await bus.group("stream", own=False)
    await group.wait_for(2)
    sent, started = 0, perf_counter()
    while perf_counter() - started < seconds:
        for _ in range(1_000):
            await group.send(STREAM_BODY)
        sent += 1_000
    await group.send(END)
    counted = (await group.receive(timeout=30)).body["counted"]
    return sent, counted, perf_counter() - started
