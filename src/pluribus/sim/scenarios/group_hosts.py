"""The log host in the memory of a group, under faults: members come, die and are cut off, and their machines go on.

Like ``hosts``, with whole buses: two machines of jobs in one group, *left* and *right*. Every member puts jobs on the
left, moves some to the right in transactions, and has a consumer on the right that gets jobs by demand. Members are
killed with what they hold, leave and come back; joiners get the state and the bodies; the eldest keeps the time. Wall
clocks differ by up to a minute.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec

from ...core.errors import PluribusError, Violation
from ...group.host.requests import Told
from ...group.host.volatile import VolatileSpace
from ...group.host.words import AGAIN, DONE
from ...runtime.bus import Bus
from ...runtime.machines.group_host import GroupHost
from ...runtime.machines.line import MachineLine
from ...runtime.machines.machines import Machines
from ...runtime.machines.reading import read_bodies
from ..checkers.group_hosts import kept, same_states, settled_once, time_never_falls, told_once, with_bodies
from ..machinery.chaos import STRIKES, restore_primary, torment
from ..machinery.history import Happening, History
from ..machinery.jobs import Attach, Jobs, Put, Settle, Take, Wait, Want
from ..machinery.world import World
from . import Scenario
from .groups import MEDIA
from .hosts import BODY
from .replica import STACK, TORMENT_S

GROUP = "both"
CALM_S = 40.0
ASK_S = 5.0
SLACK_BYTES = 2_000
"""Rows of the last extent: those of earlier ones without anything live are freed."""
Answer = tuple[str, Any]
_encode = msgspec.msgpack.encode


class SmallSpace(VolatileSpace):
    extent_bytes: ClassVar[int] = 400
    dead_bytes_max: ClassVar[int] = 2_000


class Player:
    """One member: a producer, a mover, and a consumer."""

    def __init__(self, world: World, history: History, bus: Bus) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.calm = False
        self.jump_s = world.random.uniform(-30, 30)
        bus._wall = lambda: 1_000 + world.now + self.jump_s
        self.machines: Machines = bus._style(Machines)
        self.machines.space = SmallSpace
        self.left: MachineLine[Answer] | None = None
        self.right: MachineLine[Answer] | None = None
        self._jobs = self._sequence = 0
        self.idle = False
        """True if the consumer got no job for a while."""
        self.tasks = [
            asyncio.create_task(one) for one in (self._live(), self._produce(), self._move(), self._consume())
        ]

    def note(self, what: str, id: tuple[int, int], body: bytes = b"") -> None:
        self.history.add(Happening(self.world.now, self.bus.me, what, GROUP, id, body))
        self.world.note(what, self.bus.name, body)

    @property
    def host(self) -> GroupHost | None:
        found = self.machines.group_host(GROUP)
        return found if found is not None and found.safe.ready and not found.closed else None

    @property
    def life(self) -> int:
        """The generation of the state, shortened for the history."""
        return 0 if self.host is None else self.host.safe.generation % (1 << 40)

    def jobs(self, name: str) -> Jobs | None:
        found = None if self.host is None else self.host.host.named(name)
        return found.machine if found is not None and isinstance(found.machine, Jobs) else None

    def over(self) -> bool:
        """True if the bus is closed."""
        return self.bus.closed

    async def _line(self, name: str) -> MachineLine[Answer]:
        return await self.machines.open(name, Jobs, Answer, durable=False, group=GROUP)  # type: ignore[arg-type]

    async def _live(self) -> None:
        """Keep the machines open; now and then leave and come back."""
        random = self.world.random
        try:
            while not self.over():
                self.left, self.right = await self._line("left"), await self._line("right")
                until = self.world.now + 2 + random.random() * 20
                while self.world.now < until or self.calm:
                    await asyncio.sleep(0.2)
                    if self.over():
                        return
                    if (host := self.host) is not None:
                        self.note("time", (host.log.time_us, self.life))
                        host.validate()
                        host.host.bodies.validate()
                self.left = self.right = None
                if (host := self.machines.group_host(GROUP)) is not None:
                    host.leave()
                await asyncio.sleep(random.random())
        except PluribusError:
            if not self.over():
                raise

    async def ordered(self, line: MachineLine[Answer] | None, command: bytes) -> Answer | None:
        """The outcome of a command; None if it is not known."""
        if line is None:
            return None
        try:
            return await line.call(command, ASK_S)
        except PluribusError:
            return None

    async def _produce(self) -> None:
        random = self.world.random
        while not (self.calm or self.over()):
            await asyncio.sleep(random.random() * 0.3)
            self._jobs += 1
            job = (int(self.bus.me) % 1_000_000) * 10_000 + self._jobs
            body = BODY % ((job,) * 8)
            host = self.host
            now_us = 0 if host is None else host.log.now_us
            command = Wait(job, now_us + random.randrange(3_000_000), body) if random.random() < 0.2 else Put(job, body)
            life = self.life
            answer = await self.ordered(self.left, _encode(command))
            if answer is not None and life == self.life:
                if answer[0] not in ("kept", "again"):
                    raise Violation(f"job {job} was answered {answer}")
                self.note("put", (job, life))

    async def _move(self) -> None:
        random = self.world.random
        while not (self.calm or self.over()):
            await asyncio.sleep(random.random() * 0.3)
            here, line, life = self.jobs("left"), self.left, self.life
            chosen = [] if here is None else random.sample(list(here.jobs), min(len(here.jobs), random.choice((1, 2))))
            if not chosen or line is None:
                continue
            self._sequence += 1
            parts = [
                ("left", [_encode(Take(job)) for job in chosen]),
                ("right", [_encode(Put(job, BODY % ((job,) * 8))) for job in chosen]),
            ]
            try:
                outcome = await line.transact(int(self.bus.me), self._sequence, 0, parts, ASK_S)
            except PluribusError:
                continue
            if outcome.status in (DONE, AGAIN) and life == self.life:
                for job in chosen:
                    self.note("moved", (job, life))

    async def _consume(self) -> None:
        random = self.world.random
        number = int(self.bus.me) % 1_000_000 * 100
        while not self.over():
            await asyncio.sleep(random.random())
            line = self.right
            if line is None:
                continue
            number += random.random() < 0.5
            answer = await self.ordered(line, _encode(Attach(number, int(self.bus.me))))
            if answer is not None:
                await self._work(line, number, answer[1])

    async def _work(self, line: MachineLine[Answer], number: int, epoch: int) -> None:
        """Work on jobs until the consumer is detached, or dies."""
        random = self.world.random
        after, serial = 0, 0
        slow: list[int] = []
        """Jobs that are settled when more was asked for."""
        while line is self.right and not self.over():
            serial += 1
            room = random.randrange(1, 4)
            if (await self.ordered(line, _encode(Want(number, epoch, serial, room))) or ("ended", 0))[0] != "wanted":
                return
            life = self.life
            try:
                told: Told = await line.given(number, epoch, after, wait_s=1.0, timeout=ASK_S)
            except PluribusError:
                return
            if told.ended:
                return
            self.idle = not told.given
            if random.random() < 0.05 and not self.calm:
                return  # it dies with what it was given
            done, slow = slow, []
            for one in told.given:
                after = one.number
                if life == self.life:
                    self.note("told", (one.thing, life), _encode((life, number, epoch, one.number)))
                    self.note("body", (one.thing, 0), one.bodies[0] or b"")
                (slow if random.random() < 0.3 else done).append(one.thing)
            for job in done:
                answer = await self.ordered(line, _encode(Settle(number, epoch, job)))
                if answer == ("settled", 0) and life == self.life:
                    self.note("settled", (job, life))

    async def end(self) -> None:
        """Record the final state."""
        host = self.host
        left, right = self.jobs("left"), self.jobs("right")
        if host is None or left is None or right is None:
            raise Violation(f"{self.bus.me!r} has no machines after all faults")
        if overdue := [*left.overdue(), *right.overdue()]:
            raise Violation(f"jobs {overdue[:5]} are hidden at {self.bus.me!r} although their time has come")
        names, _ = host.host.freeze(())
        state = [(name, host.host.whole_part(name)) for name in names]
        host.host.thaw(False)
        jobs = [[*one.jobs, *one.held, *one.hidden] for one in (left, right)]
        jobs[1] += right.done
        members = set(host._members())
        strangers = [owner for one in (left, right) for owner in one.owners() if owner not in members]
        self.note("final", (self.life, 0), _encode((state, jobs, strangers)))
        for name, machine in (("left", left), ("right", right)):
            hosted = host.host.named(name)
            assert hosted is not None
            every = machine.kept()
            bodies = await read_bodies(host.host, hosted.number, [one.handle for _, one in every])
            for (job, _), body in zip(every, bodies, strict=True):
                self.note("body", (job, 0), body or b"")
        space = host.host.space
        if not space.bounded or host.log.kept_bytes > space.live + space.dead + SLACK_BYTES:
            raise Violation(
                f"{host.log.kept_bytes} bytes are kept: {space.live} live, and {space.dead} dead among them"
            )


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus)

    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    await torment(world, TORMENT_S, begin, every_s=1.0)
    for player in players.values():
        player.calm = True
    await asyncio.sleep(CALM_S / 2)
    restore_primary(world)
    await asyncio.sleep(CALM_S / 2)
    for player in players.values():
        for task in player.tasks:
            if task.done():
                task.result()
        if player.host is None:
            raise Violation(f"{player.bus.me!r} still has no state {CALM_S:g} s after the last fault")
    for player in players.values():
        for task in player.tasks:
            task.cancel()
    await asyncio.sleep(3)  # what they asked for is done, what is dead is freed
    for player in players.values():
        await player.end()
    history.add(Happening(world.now, 0, "settled", members=tuple(sorted(player.bus.me for player in players.values()))))
    world.validate()


GROUP_HOSTS = Scenario(
    "group-hosts",
    "machines in the memory of a group: transactions, demands and leases, joiners and bodies, under every fault",
    STACK,
    play,
    {
        "kept": kept,
        "told_once": told_once,
        "settled_once": settled_once,
        "same_states": same_states,
        "with_bodies": with_bodies,
        "time_never_falls": time_never_falls,
    },
    STRIKES,
    members_min=3,
    members_max=5,
    media=MEDIA,
)
