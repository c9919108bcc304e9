"""``pluribus bench fuzz``: millions of mutated frames against a live node, which must go on undisturbed.

Frames of members are recorded: hellos, byes, refusals, data of every kind, acknowledgements, probes. Then a fresh node,
a whole bus with its groups, gets mutants of these frames in lists of 32, as from an engine. No exception may leave it,
no layer may fail on a frame, its memory stays flat, and in the end it still answers a valid hello, delivers a valid
message and is heard.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from ..core.errors import Overflow
from ..core.limits import DATAGRAMS_PER_WAKE_MAX, SILENCE_S
from ..core.ports import Address, Datagram
from ..runtime.bus import BEST_EFFORT, Bus
from ..runtime.group.group import Group
from .mutants import Mutants
from .report import at_least, at_most, report, result
from .wire import GROUPS, Wire, recorded

LISTS_A_ROUND = 40
LIST_S = 0.01
"""Seconds of virtual time that pass with each list, so that timers fire and invented peers are forgotten."""
VALIDATED_ROUNDS = 50
RSS_GROWTH_BYTES_MAX = 8 << 20
SPOKEN = bytes(20_000)
SOURCES: list[Address] = [(f"10.0.0.{number}", 7_000 + number) for number in range(8)]


def run(
    *, quick: bool = False, frames: int = 1_000_000, seed: int = 0, progress: Callable[[str], None], **_: Any
) -> dict[str, Any]:
    """The bench: ``fuzz``, with its goals."""
    frames = min(frames, 100_000) if quick else frames
    found = fuzz(frames, seed, lambda done: progress(f"{done:,} of {frames:,} frames"))
    goals = [
        at_least("the node is alive", found["alive"], 1),
        at_most("exceptions that left the node", found["escaped"], 0),
        at_most("frames that a layer failed on", found["faulty"], 0),
        at_least("share of frames that pass the codec", found["share_passed"], 0.4),
        at_most("growth of memory after the first tenth, bytes", found["rss_growth_bytes"], RSS_GROWTH_BYTES_MAX),
    ]
    rate = result("mutated frames through a whole node", "frames/s", [found["frames_per_second"]])
    return {**report("fuzz", [rate], goals), **found}


def fuzz(
    frames: int, seed: int, progress: Callable[[int], None] | None = None, *, stack: str = BEST_EFFORT
) -> dict[str, Any]:
    """Feed so many frames; the same seed feeds the same frames. ``progress`` is called with the count now and then."""
    log = logging.getLogger("pluribus")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)  # what is logged once a peer is logged for every invented peer
    try:
        return asyncio.run(_Node(seed, stack).fuzzed(frames, progress or (lambda done: None)))
    finally:
        log.setLevel(level)


class _Node:
    """The node, the mutants, and counts of their outcomes."""

    def __init__(self, seed: int, stack: str) -> None:
        self._seed = seed
        self._stack = stack
        self._random = Random(seed)
        self._wire = Wire(seed)
        self._escaped: list[str] = []
        self._passing = 0.5

    async def fuzzed(self, frames: int, progress: Callable[[int], None]) -> dict[str, Any]:
        asyncio.get_running_loop().set_exception_handler(self._escapes_in_loop)
        samples = await recorded(self._stack, self._seed)
        self._bus: Bus = await self._wire.member("node", self._stack)
        self._groups: list[Group] = [await self._wire.during(self._bus.group(name)) for name in GROUPS]
        self._mutants = Mutants(samples, int(self._bus.me), self._random)
        fed, rss_then, started = 0, 0, perf_counter()
        tenth, shown = frames // 10, 0
        while fed < frames:
            fed += await self._round(frames - fed)
            if not rss_then and fed >= tenth:
                rss_then = rss_bytes()
            if fed - shown >= frames // 100:
                progress(fed)
                shown = fed
        seconds = perf_counter() - started
        growth = rss_bytes() - rss_then
        alive = await self._is_alive()
        transport = self._bus.stats()["transport"]
        headers = {type(header).__name__ for frame in samples for header in frame.headers}
        return {
            "frames": fed,
            "passed_codec": fed - self._malformed,
            "share_passed": round(1 - self._malformed / fed, 4),
            "malformed": transport["malformed"],
            "faulty": transport["faulty"],
            "escaped": len(self._escaped),
            "first_escaped": next(iter(self._escaped), ""),
            "alive": alive,
            "rss_growth_bytes": growth,
            "frames_per_second": round(fed / seconds),
            "seconds": round(seconds, 1),
            "headers": sorted(headers),
            "layers": self._bus.stats(),
            "seed": self._seed,
        }

    @property
    def _malformed(self) -> int:
        return int(self._bus._transport.malformed)

    async def _round(self, most: int) -> int:
        """Feed some lists from new senders: first valid frames, so that the node knows the senders, then mutants."""
        mutants, random = self._mutants, self._random.random
        mutants.identify()
        fed = self._feed(mutants.greetings()[:most])
        count = DATAGRAMS_PER_WAKE_MAX
        for number in range(LISTS_A_ROUND):
            if fed >= most:
                break
            before = self._malformed
            # As many of each sort as it takes to have half of all pass.
            structured = int(count * self._passing + random())
            raw = [mutants.raw() for _ in range(count - structured)]
            fed += self._feed([*raw, *(mutants.structured() for _ in range(structured))][: most - fed])
            self._passing = min(max(self._passing + (self._malformed - before - count / 2) / (9 * count), 0.1), 0.9)
            self._guarded(self._time_passes)
            self._wire.waiting.clear()
            self._read()
            await asyncio.sleep(0)  # the calls that were heard are looked at in a turn of the loop
            if number % 20 == 0:
                await self._speak()
        if random() < 1 / VALIDATED_ROUNDS:
            self._guarded(self._bus.validate)
        return fed

    def _time_passes(self) -> None:
        self._wire.kernel.run(self._wire.kernel.now + LIST_S)

    def _feed(self, datagrams: list[bytes]) -> int:
        source = SOURCES[int(self._random.random() * len(SOURCES))]
        heard: list[Datagram] = [(data, source) for data in datagrams]
        self._guarded(lambda: self._bus._receive(heard))
        return len(heard)

    def _read(self) -> None:
        """Read the messages that arrived all the same, as an application would."""
        for group in self._groups:
            channel = group._channel
            while channel.inbox:
                for _ in channel.take():
                    pass
            if channel.must_report:
                self._guarded(lambda channel=channel: self._bus._dispatch.consumed(channel))  # type: ignore[misc]

    async def _speak(self) -> None:
        """Let the node send, so that mutated acknowledgements and probes concern messages of it."""
        for group in self._groups:
            try:
                await group.send(SPOKEN, timeout=0)
            except Overflow:
                continue  # invented members read nothing
            except Exception:  # noqa: BLE001 - that any leaves is the finding
                self._note_escape()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - that any leaves is the finding
            self._note_escape()

    def _escapes_in_loop(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count an exception of a call-back or a task of the node as one that left the node."""
        error = context.get("exception")
        story = "".join(traceback.format_exception(error)) if error else str(context["message"])
        self._escaped.append(story if not self._escaped else "")

    def _note_escape(self) -> None:
        """Keep the first exception with its traceback, and count the others."""
        self._escaped.append(traceback.format_exc() if not self._escaped else "")

    async def _is_alive(self) -> bool:
        """After a while without mutants, check that the node answers a newcomer, delivers its messages, and sends to
        it."""
        try:
            return await self._meets_a_newcomer()
        except Exception:  # noqa: BLE001 - a node that fails here is not alive, whatever the reason
            self._escaped.append(traceback.format_exc())
            return False

    async def _meets_a_newcomer(self) -> bool:
        wire, group = self._wire, self._groups[0]
        await wire.run(3 * SILENCE_S)
        self._read()
        newcomer = await wire.member("newcomer", self._stack)
        theirs = await wire.during(newcomer.group(GROUPS[0]))
        await wire.run(SILENCE_S)
        self._read()
        known = self._bus.me in newcomer.members and newcomer.me in self._bus.members
        await theirs.send(b"are you there?", timeout=0)
        await group.send(b"I am", timeout=0)
        await wire.run(1.0)
        heard = {message.body for message in await group.receive_many(timeout=0)}
        told = {message.body for message in await theirs.receive_many(timeout=0)}
        self._bus.validate()
        return known and b"are you there?" in heard and b"I am" in told


def rss_bytes() -> int:
    """Bytes of resident memory; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    import resource

    return pages * resource.getpagesize()
