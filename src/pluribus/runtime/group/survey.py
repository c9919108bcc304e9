"""Surveys: what every member of a bus counted, asked from outside. The asker is no member and changes nothing.

``survey(url)`` is the way in; ``report`` is what a member says of itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from ...core.errors import BadInput
from ...core.frame import Header
from ...core.ids import MemberId, new_member_id
from ...core.ports import Datagram, Engine, Ports
from ...core.url import parse_url
from ...engines import engine_for
from ...layers import CATALOGUE
from ...layers.inquiry import Inquirer
from ...layers.transport import Transport
from ...stack.layer import Layer, Node
from ...stack.specification import build
from ...stack.stack import Stack
from ..loop.clock import LoopClock, real_random
from .secret import Given, catalogue, secret_from, secured

OUTSIDE = "transport | fragment | introductions"
QUIET_S = 0.3
"""If no new member answers for so long, all have answered."""
LISTEN_S = 0.03
ASK_S = 0.5
"""Ask again, for answers that were lost and members that were introduced late."""

GAUGES = frozenset(
    {
        "channels",
        "dead_bytes",
        "early_waiting",
        "flush_s_last",
        "flush_s_max",
        "flush_s_p95",
        "groups",
        "held_frames",
        "inbox_frames",
        "kept_bytes",
        "large_begun",
        "live_bytes",
        "members",
        "partial",
        "peers",
        "primary",
        "proven",
        "room_bytes",
        "rows",
        "snapshot_s",
        "streams_in",
        "streams_out",
        "suspected",
        "view",
        "view_keys",
        "waiting",
    }
)
"""Statistics that go up and down; all other numbers only grow, and are shown as rates."""

Counts = dict[str, dict[str, Any]]
"""By layer: what it counted."""


class SurveyAnswer(msgspec.Struct, frozen=True):
    """One member's statistics, at a time of its own clock."""

    member: MemberId
    name: str
    at: float
    layers: Counts

    def rates(self, before: SurveyAnswer) -> dict[str, dict[str, float]]:
        """By layer and counter: how much it grew a second since an earlier answer of the same member."""
        seconds = max(self.at - before.at, 1e-9)
        return {
            layer: {
                name: round((value - before.layers[layer].get(name, 0)) / seconds, 3)
                for name, value in counts.items()
                if name not in GAUGES and type(value) in (int, float)
            }
            for layer, counts in self.layers.items()
            if layer in before.layers
        }


class _Told(msgspec.Struct, array_like=True):
    name: str
    at: float
    layers: Counts


_decode = msgspec.msgpack.Decoder(_Told).decode


def report(name: str, at: float, layers: Counts) -> bytes:
    return msgspec.msgpack.encode(_Told(name, at, layers))


class Survey:
    """Made by ``survey``. Each ``take`` is a question to everybody."""

    def __init__(self, stack: Stack, inquirer: Inquirer) -> None:
        self._stack = stack
        self._inquirer = inquirer
        self._answers: dict[int, SurveyAnswer] = {}
        self._quiet_s = 0.0
        inquirer.on_answer = self._hear

    async def take(self, wait_s: float = 1.0) -> list[SurveyAnswer]:
        """All answers, by name, as soon as no more come; none after ``wait_s`` seconds without any."""
        loop = asyncio.get_running_loop()
        began = asked = loop.time()
        self._answers, self._quiet_s = {}, 0.0
        self._stack.run(self._inquirer.ask)
        while self._quiet_s < (QUIET_S if self._answers else wait_s):
            # Only time in which this loop could hear counts as quiet: a loop that was held has its answers yet to read.
            self._quiet_s += LISTEN_S
            await asyncio.sleep(LISTEN_S)
            if loop.time() - asked > ASK_S and loop.time() - began < wait_s:
                asked = loop.time()
                self._stack.run(self._inquirer.ask)
        return sorted(self._answers.values(), key=lambda answer: (answer.name, answer.member))

    def _hear(self, member: int, encoded: bytes) -> None:
        try:
            told = _decode(encoded)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        if member not in self._answers:
            self._quiet_s = 0.0
        self._answers[member] = SurveyAnswer(MemberId(member), told.name, told.at, told.layers)


@asynccontextmanager
async def survey(url: str, *, secret: Given | None = None) -> AsyncIterator[Survey]:
    """Ask the members of the bus that a URL names. ``secret`` as in ``connect``."""
    place = parse_url(url)
    known = secret_from(secret)
    outside = build(OUTSIDE if known is None else secured(OUTSIDE), catalogue(known))
    inquirer = Inquirer(_overheard(outside))
    layers: list[Layer] = [*outside, inquirer]
    loop = asyncio.get_running_loop()
    engine: Engine = engine_for(place)
    ports = Ports(clock=LoopClock(loop), random=real_random(), engine=engine)
    stack = Stack(layers, ports, Node(int(new_member_id(ports.random.getrandbits(64))), "survey", place.bus))
    transport = layers[0]
    if not isinstance(transport, Transport):
        raise BadInput(f"{OUTSIDE!r} does not begin with a transport")

    def receive(datagrams: list[Datagram]) -> None:
        stack.run(partial(transport.receive, datagrams))

    try:
        await engine.open(receive, lambda: None)
        stack.start()
        yield Survey(stack, inquirer)
    finally:
        stack.stop()
        await engine.close()


def _overheard(layers: list[Layer]) -> list[type[Header]]:
    """Every header that members may send and the survey's own layers do not have."""
    taken = {header.__struct_config__.tag for layer in (*layers, Inquirer()) for header in layer.headers}
    found: dict[object, type[Header]] = {}
    for kind in CATALOGUE.values():
        for header in getattr(kind, "headers", ()):
            if header.__struct_config__.tag not in taken:
                found.setdefault(header.__struct_config__.tag, header)
    return list(found.values())
