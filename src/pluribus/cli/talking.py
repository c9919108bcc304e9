"""The demonstration: a second process joins the same bus, answers questions, then takes a stream of messages."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from pluribus.core.errors import PluribusError, Unreachable
from pluribus.runtime.bus import BEST_EFFORT, Bus, connect
from pluribus.runtime.group.group import Group
from pluribus.runtime.loop.running import run

QUESTIONS = 200
UNANSWERED_MAX = 3
ANSWER_S = 5.0
JOIN_S = 10.0
STREAM_BODY = b"x" * 100
END = "end"

Say = Callable[[str], None]
Complaint = Callable[[], str]
"""Returns the reason why the second member ended; empty while it runs."""


def talk(url: str | None, seconds: float, say: Say, stack: str | None = None) -> dict[str, Any]:
    """Run the demonstration and return its summary; ``say`` gets a line for everything worth telling."""
    url = url or os.environ.get("PLURIBUS_URL") or f"multicast://demo-{os.getpid()}"
    return run(_ask(url, stack or BEST_EFFORT, seconds, say))


def answer(url: str, stack: str) -> None:
    """Run the second process."""
    try:
        run(_answer(url, stack))
    except PluribusError as error:
        sys.exit(str(error))


async def _answer(url: str, stack: str) -> None:
    """Echo questions, count the stream, and report the count when asked."""
    async with connect(url, name="answerer", stack=stack) as bus:
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
                else:
                    counted += 1

        await asyncio.gather(echo(), count())


async def _ask(url: str, stack: str, seconds: float, say: Say) -> dict[str, Any]:
    # The first member joins before the second is started: what is wrong with the URL is then said once.
    async with connect(url, name="asker", stack=stack) as bus:
        say(f"I am {bus.me!r}, alone on {bus.url.text}; my stack, top to bottom:")
        for line in bus.describe().splitlines():
            say(f"    {line}")
        second = _second_task if bus.url.scheme == "inproc" else _second_process
        async with second(url, stack) as complaint:
            trips, asked = await _questions(bus, complaint, say)
            sent, counted, took = await _stream(bus, seconds)
        say(f"{sent:,} messages of {len(STREAM_BODY)} bytes streamed in {took:.1f} s")
        trip = sorted(trips)[len(trips) // 2]
        published = sent + asked
        delivered = counted + len(trips)
        return {
            "published": published,
            "delivered": delivered,
            "lost": published - delivered,
            "round_trip_us": round(trip * 1e6, 1),
            "rate": round(counted / took),
            "seconds": round(took, 3),
        }


@asynccontextmanager
async def _second_process(url: str, stack: str) -> AsyncIterator[Complaint]:
    code = f"from pluribus.cli.talking import answer; answer({url!r}, {stack!r})"
    command = [sys.executable, "-c", code]
    with tempfile.TemporaryFile() as errors, subprocess.Popen(command, stderr=errors) as process:  # noqa: ASYNC220

        def complaint() -> str:
            if process.poll() is None:
                return ""
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else f"it ended with exit code {process.returncode}"

        try:
            yield complaint
        finally:
            process.terminate()


@asynccontextmanager
async def _second_task(url: str, stack: str) -> AsyncIterator[Complaint]:
    """Run the second member as a task: members of an in-process bus live in one process."""
    task = asyncio.create_task(_answer(url, stack))

    def complaint() -> str:
        return str(task.exception()) if task.done() else ""

    try:
        yield complaint
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _questions(bus: Bus, complaint: Complaint, say: Say) -> tuple[list[float], int]:
    """The round-trip times of the answered questions, and how many were asked."""
    group = await bus.group("questions", own=False)
    await _joined(group, complaint)
    for member, name in group.view.names.items():
        say(f"in the group 'questions': {name} {member!r}")
    trips: list[float] = []
    asked = 0
    while asked < QUESTIONS and asked - len(trips) < UNANSWERED_MAX:
        started = perf_counter()
        await group.send({"question": asked})
        if await _answered(group, asked):
            trips.append(perf_counter() - started)
        asked += 1
    if not trips:
        raise Unreachable("the second member answered no question: try a stack that loses less")
    return trips, asked


async def _joined(group: Group, complaint: Complaint) -> None:
    until = perf_counter() + JOIN_S
    while len(group.view) < 2:
        try:
            await group.wait_for(2, timeout=0.1)
        except TimeoutError:
            why = complaint()
            if why:
                raise Unreachable(f"the second member could not join: {why}") from None
            if perf_counter() > until:
                raise Unreachable(
                    f"the second member did not join in {JOIN_S:g} s: `pluribus doctor` tells what is wrong"
                ) from None


async def _answered(group: Group, question: int) -> bool:
    try:
        async with asyncio.timeout(ANSWER_S):
            while (await group.receive()).body != {"question": question}:
                pass  # the answer to an earlier one, which was given up
    except TimeoutError:
        return False
    return True


async def _stream(bus: Bus, seconds: float) -> tuple[int, int, float]:
    """How many messages were sent, how many the other member counted, and the seconds that this took."""
    group = await bus.group("stream", own=False)
    await group.wait_for(2)
    sent, started = 0, perf_counter()
    while perf_counter() - started < seconds:
        for _ in range(1_000):
            await group.send(STREAM_BODY)
        sent += 1_000
    for _ in range(UNANSWERED_MAX):
        await group.send(END)
        try:
            counted = (await group.receive(timeout=ANSWER_S)).body["counted"]
        except TimeoutError:
            continue
        return sent, counted, perf_counter() - started
    raise Unreachable("the second member did not say how many messages it has: is the machine overloaded?")
