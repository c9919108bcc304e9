"""The log host under faults: several machines on one log, transactions across them, demands whose owners die.

Two machines of jobs, *left* and *right*. Producers put jobs on the left, movers move them to the right in transactions,
consumers on the right get jobs by demand and settle them. A third machine is a user's: calls add to its counters. Wall
clocks jump with every restart, a learner may lack the code of a machine for a while, and snapshots, extents and windows
are so small that every mechanism is at work in twenty seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec

from ...core.errors import Damaged, PluribusError, Violation
from ...group.host.bodies import Handle
from ...group.host.host import HOST, Host
from ...group.host.machine import Machine
from ...group.host.space import LogExtents
from ...group.host.tending import Tending
from ...group.host.user import hosted
from ...group.host.words import AGAIN, DONE, Create, Outcome, Together, encode
from ...group.keepers import Keeper, Settings
from ...group.keepers.rows import head_of
from ...group.sessions import FIRST_TIME, Command, SessionEntry
from ...runtime.bus import BEST_EFFORT
from ...runtime.machines.reading import read_bodies
from ..checkers.hosts import (
    all_or_nothing,
    assigned_once,
    bounded,
    counted,
    same_states,
    time_never_falls,
    with_bodies,
)
from ..checkers.logs import agreement, one_leader
from ..machinery.chaos import STRIKES, torment
from ..machinery.history import Happening, History
from ..machinery.jobs import LEASE_US, Attach, Jobs, Put, Settle, Take, Wait, Want
from ..machinery.world import World
from . import Scenario
from .durable_topics import Watched
from .keepers import CALM_S, NAME, PORT, SETTINGS, TORMENT_S, found, settle
from .keepers import Life as KeeperLife
from .keepers import Play as KeepersPlay

CONSUMERS = 3
CODE_LATE = 0.3
"""The share of runs in which a learner has no code of jobs at first."""
BODY = b"body of job %d " * 8
SLICED = msgspec.structs.replace(SETTINGS, turn_bytes=100)
"""Snapshots are taken over many turns, between which commands are applied and keepers crash."""
MEMORY_BYTES = 2_000
"""Bytes of rows in memory: so few that most bodies must be read from disk."""
READ_S = 3.0
"""Seconds to wait for a read: a keeper that crashes does not answer, and another one is asked."""

_encode = msgspec.msgpack.encode


class Counters:
    """A user's machine: a command adds to a counter."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def apply(self, index: int, command: bytes) -> bytes:
        name, number = command.decode().split()
        if name == "never":
            raise ValueError("this counter is not counted")
        self.values[name] = self.values.get(name, 0) + int(number)
        return str(self.values[name]).encode()

    def snapshot(self) -> bytes:
        return _encode(list(self.values.items()))

    def restore(self, state: bytes) -> None:
        self.values = dict(msgspec.msgpack.decode(state, type=list[tuple[str, int]])) if state else {}


class SmallSpace(LogExtents):
    extent_bytes: ClassVar[int] = 400
    dead_bytes_max: ClassVar[int] = 2_000


CODES: dict[str, type[Machine]] = {"jobs": Jobs, "counters": hosted("counters", Counters)}


FREED_S = 1.0
"""A keeper looks for dead rows twice a second, and frees them in steps: this long after a snapshot, rows below it are
freed that were dead by then."""
STORED_ROWS = 16
"""A keeper notes how much it stores at every so manieth row: the bound holds while machines are at work, too."""


class Covered:
    """The rows that a snapshot has covered for long enough that a keeper can have freed what is dead of them."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        """When each snapshot was first seen, and its row: the latest one that is old enough, and those behind it."""

    def below(self, now: float, row: int) -> int:
        """Call it at every row that is applied. ``row`` is that of the snapshot."""
        if not self._seen or self._seen[-1][1] != row:
            self._seen.append((now, row))
        while len(self._seen) > 1 and self._seen[1][0] <= now - FREED_S:
            self._seen.popleft()
        at, oldest = self._seen[0]
        return min(oldest, row) if at <= now - FREED_S else 0


class Life(KeeperLife):
    """A keeper with a host, from its start to its crash."""

    def __init__(self, play: Play, number: int) -> None:
        self.play = play
        self.number = number
        self.host = play.world.hosts[number]
        self.life = self.host.incarnations
        self.engine = self.host.port(PORT)
        self._validates = play.validates
        late = number == play.late_with_code and not play.upgraded
        jump = play.world.random.uniform(-50, 50)
        clock, random = self.host.clock(), self.host.random("/keeper")
        self.keeper = Keeper(
            NAME,
            self.host.disk,
            self,
            clock,
            random,
            play.settings,
            self._report,
            lambda: 1_000 + play.world.now + jump,
        )
        codes = {kind: code for kind, code in play.codes.items() if not (late and kind == play.late_kind)}
        self.hosting = Host(self.keeper, codes, (), SmallSpace)
        self._apply = self.keeper.on_commit
        self.keeper.on_commit = self._commit
        self.tending = Tending(self.hosting, self.keeper)
        self.hosting.on_applied = self.tending.applied
        self.keeper.seat.state = Watched(self.hosting, self.restored)
        self.keeper.keep_rows(0)
        self.keeper.on_role = self._role
        self.keeper.ledger.cache_bytes_max = MEMORY_BYTES
        self.hosting.bodies.cache_bytes_max = MEMORY_BYTES
        self._covered = Covered()
        self._failures = self.keeper.ledger.failures

    async def start(self) -> None:
        await super().start()
        self.tending.start()

    def _commit(self, first: int, held: Sequence[bytes]) -> None:
        for index, command in enumerate(held, first):
            self.play.add(self.number, "apply", (index, self.life), command)
        if self.keeper.leads:
            self.play.add(self.number, "led", (self.keeper.ledger.epoch, self.keeper.id), b"")
        head = self.keeper.ledger.head_at(self.keeper.row)
        self.play.add(self.number, "time", (0 if head is None else head.time_us, self.life), b"")
        covered = self.covered()
        if covered and not self.keeper.row % STORED_ROWS:
            self.play.add(self.number, "stored", stored(self), b"")
        self._apply(first, held)
        if not self.keeper.row % self._validates:
            self.hosting.validate()

    def covered(self) -> int:
        """Rows below this one count. While its disk is full a keeper frees nothing."""
        if self.keeper.ledger.failing or self.keeper.ledger.failures != self._failures:
            self._failures = self.keeper.ledger.failures
            self._covered = Covered()
        return self._covered.below(self.play.world.now, self.keeper.ledger.snapshot.row)

    def restored(self, index: int) -> None:
        self.play.add(self.number, "restore", (index, self.life), b"")

    async def bodies(self, machine: str, handles: Sequence[Handle]) -> Sequence[bytes | None]:
        """Bodies as the keeper that holds a consumer's line reads them; from disk, if they are not in memory."""
        hosted = self.hosting.named(machine)
        assert hosted is not None
        self.hosting.bodies.validate()
        return await read_bodies(self.hosting, hosted.number, handles)

    async def kept(self, machine: str) -> list[tuple[int, int, bytes | None]]:
        """Every job that is not done, with its row and body. Damaged rows are repaired first, and no row is written
        forward meanwhile."""
        for _ in range(100):
            jobs = self.jobs(machine)
            assert jobs is not None
            kept = jobs.kept()
            try:
                bodies = await self.bodies(machine, [one.handle for _, one in kept])
            except Damaged:
                await asyncio.sleep(0.1)
                continue
            if kept == jobs.kept():
                return [(job, one.row, body) for (job, one), body in zip(kept, bodies, strict=True)]
        raise Violation(f"bodies of {machine!r} are still damaged at keeper {self.number}")

    def jobs(self, name: str) -> Jobs | None:
        found = self.hosting.named(name)
        return found.machine if found is not None and isinstance(found.machine, Jobs) else None


class Play(KeepersPlay):
    lives: dict[int, Life]  # type: ignore[assignment]
    codes: ClassVar[dict[str, type[Machine]]] = CODES
    machines: ClassVar[tuple[tuple[str, str], ...]] = (("left", "jobs"), ("right", "jobs"), ("counters", "counters"))
    """The names and kinds of the machines."""
    late_kind: ClassVar[str] = "jobs"
    """The kind whose code a learner may lack at first."""
    settings: ClassVar[Settings] = SLICED
    validates: ClassVar[int] = 1
    """Machines are validated after every so many rows."""

    def __init__(self, world: World, history: History) -> None:
        learners = range(3, len(world.hosts))
        late = world.random.random() < CODE_LATE and len(learners) > 0
        self.late_with_code = world.random.choice(learners) if late else -1
        self.upgraded = False
        super().__init__(world, history)
        self.voters = 3
        self.keeps_all = False
        self._jobs = self._sequence = 0

    async def begin(self, number: int, bus: Any = None) -> None:
        life = self.lives[number] = Life(self, number)
        await life.start()

    async def ordered(self, machine: str, command: bytes) -> Any:
        """Order a command, and repeat it until its outcome is certain. ``machine`` is a name; empty: the host."""
        while True:
            numbers: list[int] = []

            def submit(life: Life, done: Callable[[int, PluribusError | None], None], numbers: Any = numbers) -> None:
                hosted = life.hosting.named(machine) if machine else None
                if machine and hosted is None:
                    raise PluribusError("not here yet")

                def placed(index: int, error: PluribusError | None) -> None:
                    if error is None:
                        outcomes = life.hosting.take_outcomes(index, 1)
                        if outcomes is None:
                            done(-1, PluribusError("forgotten"))
                            return
                        numbers.append(outcomes[0])
                    done(index, error)

                life.keeper.submit_many([command], placed, HOST if hosted is None else hosted.number)

            try:
                await self.ask(submit)  # type: ignore[arg-type]
                return numbers[0]
            except PluribusError:
                if self.done:
                    raise
                await asyncio.sleep(self.world.random.random() * 0.2)

    done = False

    async def create(self) -> None:
        for name, kind in self.machines:
            while True:
                outcome: Outcome = await self.ordered("", encode(Create(name, kind, 1)))
                if outcome.status in (DONE, AGAIN):
                    break
                await asyncio.sleep(0.2)

    async def producer(self) -> None:
        random = self.world.random
        while not self.calm:
            self._jobs += 1
            job = self._jobs
            await asyncio.sleep(random.random() * 0.1)
            body = BODY % ((job,) * 8)
            late_us = 1_000_000_000 + int((self.world.now + random.random() * 3) * 1e6)
            command = Wait(job, late_us, body) if random.random() < 0.2 else Put(job, body)
            answer = await self.ordered("left", _encode(command))
            assert answer[0] in ("kept", "again"), answer
            self.add(0, "put", (job, 0), b"")

    async def mover(self, session: int) -> None:
        """Move jobs from the left to the right in transactions; a transaction with a job that another mover took first
        is refused as a whole."""
        random = self.world.random
        while not self.calm:
            await asyncio.sleep(random.random() * 0.1)
            up = [life for life in self.lives.values() if life.up and life.jobs("left") is not None]
            if not up:
                continue
            left = random.choice(up).jobs("left")
            free = [] if left is None else list(left.jobs)[:8]
            chosen = random.sample(free, min(len(free), random.choice((1, 1, 2, 3))))
            if not chosen:
                continue
            self._sequence += 1
            sequence = self._sequence
            twice = random.random() < 0.1
            parts = [
                (1, [_encode(Take(job)) for job in chosen]),
                (2, [_encode(Put(job, BODY % ((job,) * 8))) for job in (*chosen, *(chosen[:1] if twice else ()))]),
            ]
            if twice:  # the second machine refuses, when the first has prepared
                parts[1][1][-1] = _encode(Settle(0, 0, chosen[0]))
            outcome: Outcome = await self.ordered("", encode(Together(session, sequence, 0, parts)))
            moved = outcome.status in (DONE, AGAIN)
            if moved == twice and twice:
                raise Violation(f"a transaction that cannot be done was done: {outcome}")
            for job in chosen:
                self.add(session, "moved" if moved else "stayed", (job, sequence), b"")

    async def consumer(self, name: int) -> None:
        """Attach, work for a while, and crash. Another consumer takes its place, or the same one comes back, perhaps
        after its lease has ended, and sometimes settles jobs that it was given before the crash."""
        random = self.world.random
        number = 100 * name
        former: dict[int, int] = {}
        while not self.calm or self._left():
            if random.random() < 0.5:
                number += 1
                former.clear()
            until = self.world.now + random.random() * 8
            await asyncio.sleep(random.choice((0.0, 0.0, LEASE_US / 1e6 + 1)))
            _, epoch = await self.ordered("right", _encode(Attach(number, number)))
            serial = 0
            while self.world.now < until or self.calm:
                serial += 1
                answer, _ = await self.ordered("right", _encode(Want(number, epoch, serial, random.randrange(1, 4))))
                if answer == "ended":
                    break
                for life in self.lives.values():
                    if life.up:
                        life.keeper.alive([(2, number)])
                held = await self._read(number)
                if random.random() < 0.1:  # it dies with what it holds
                    former.update(dict.fromkeys(held, epoch))
                    break
                for job in held:
                    if random.random() < 0.1:  # the job is slow
                        await asyncio.sleep(random.random())
                    await self._late(number, former, job)
                    self.add(number, "handled", (job, epoch), b"")
                    settled, _ = await self.ordered("right", _encode(Settle(number, epoch, job)))
                    self.add(number, settled, (job, epoch), b"")
                if random.random() < 0.2:
                    _, epoch = await self.ordered("right", _encode(Attach(number, number)))
                    serial = 0
                await asyncio.sleep(0.05 + random.random() * 0.2)
                if self.calm and not self._left():
                    break

    async def _late(self, number: int, former: dict[int, int], job: int) -> None:
        """Settle a job under the epoch before a crash: this must not count, although the consumer holds the job
        again."""
        epoch = former.pop(job, None)
        if epoch is not None:
            settled, _ = await self.ordered("right", _encode(Settle(number, epoch, job)))
            if settled == "settled":
                raise Violation(f"consumer {number} settled job {job} for a former life, of epoch {epoch}")

    async def _read(self, number: int) -> list[int]:
        """Read assignments, with their bodies, from the keeper to which the consumer is connected. If a body was
        written forward meanwhile, or the job taken away, the keeper tells again, or not."""
        up = [life for life in self.lives.values() if life.up and life.jobs("right") is not None]
        if not up:
            return []
        life = self.world.random.choice(up)
        right = life.jobs("right")
        assert right is not None
        consumer = right.demands.consumers.get(number)
        held = [] if consumer is None else [(job, right.held[job]) for job in consumer.held]
        try:
            async with asyncio.timeout(READ_S):
                bodies = await life.bodies("right", [kept.handle for _, kept in held])
        except (PluribusError, TimeoutError):
            return []
        for (job, kept), body in zip(held, bodies, strict=True):
            if body is not None:
                self.add(life.number, "body", (job, kept.row), body)
            elif life.jobs("right") is right and right.held.get(job) == kept and self._is_first(life):
                raise Violation(f"the body of job {job} is not in row {kept.row} of keeper {life.number}")
        return [job for (job, _), body in zip(held, bodies, strict=True) if body is not None]

    def _is_first(self, life: Life) -> bool:
        """True if no keeper has applied more: one that was opened lately may name rows that it made hollow before its
        crash."""
        return life.up and all(other.keeper.applied <= life.keeper.applied for other in self.lives.values())

    def _left(self) -> bool:
        """True if jobs are left on the right."""
        jobs = [life.jobs("right") for life in self.lives.values() if life.up]
        return any(one is None or one.jobs or one.held for one in jobs) or not jobs

    async def caller(self, session: int) -> None:
        random = self.world.random
        sequence = 0
        while not self.calm:
            await asyncio.sleep(random.random() * 0.1)
            sequence += 1
            name = random.choice(("x", "y", "never"))
            command = Command(session, sequence, sequence, FIRST_TIME, f"{name} 1".encode())
            first = True
            while True:
                command.generation = FIRST_TIME if first else 0
                entry = await self.ordered("counters", command.encoded())
                first = False
                if isinstance(entry, SessionEntry) and not entry.lost:
                    break
            if entry.fine == (name == "never"):
                raise Violation(f"a call of {name!r} was answered {entry}")
            if entry.fine:
                self.add(session, "added", (session, sequence), name.encode())

    async def upgrade(self) -> None:
        """Restart the keeper that had old code with the new code."""
        if self.late_with_code < 0:
            return
        await asyncio.sleep(5 + self.world.random.random() * 10)
        self.upgraded = True
        number = self.late_with_code
        if self.world.hosts[number].up:
            self.world.crash(number)


async def play(world: World, history: History) -> None:
    playing = Play(world, history)
    for number in range(len(world.hosts)):
        await playing.begin(number)
    await found(playing)
    await playing.create()
    acting = [playing.producer(), playing.producer(), playing.upgrade(), playing.operator()]
    acting += [playing.mover(10_000 + number) for number in range(2)]
    acting += [playing.caller(20_000 + number) for number in range(2)]
    acting += [playing.consumer(number) for number in range(1, CONSUMERS + 1)]
    tasks = [asyncio.create_task(one) for one in acting]
    if playing.churns:
        await playing.churn()
    await torment(world, 0.0 if playing.churns else TORMENT_S, playing.begin, 0.3, playing.faults())
    if playing.late_with_code >= 0:
        playing.upgraded = True
        number = playing.late_with_code
        if playing.lives[number].keeper.seat.halted:
            world.crash(number)
            await playing.begin(number, await world.restart(number))
    playing.calm = True
    _, late = await asyncio.wait(tasks, timeout=2 * CALM_S)
    if late:
        raise Violation(f"{len(late)} clients still wait {2 * CALM_S:g} s after the last fault")
    for task in tasks:
        task.result()
    await settle(playing)
    await asyncio.sleep(5)  # what is dead is freed, a little at a time
    await settle(playing)
    for number, life in playing.lives.items():
        life.keeper.validate()
        life.hosting.validate()
        names, _ = life.hosting.freeze(())
        state = [(name, life.hosting.whole_part(name)) for name in names]
        life.hosting.thaw(False)
        left, right = life.jobs("left"), life.jobs("right")
        counters = life.hosting.named("counters")
        assert left is not None and right is not None and counters is not None
        if overdue := [*left.overdue(), *right.overdue()]:
            raise Violation(f"jobs {overdue[:5]} are hidden at keeper {number} although their time has come")
        jobs = [[*one.jobs, *one.held, *one.hidden] for one in (left, right)]
        jobs[1] += right.done
        values = counters.machine.machine.values  # type: ignore[attr-defined]
        playing.add(number, "final", (life.keeper.applied, life.life), _encode((state, jobs, values)))
        playing.add(number, "stored", stored(life), b"")
        playing.add(number, "differed", (life.keeper.differed, 0), b"")
    for number, life in playing.lives.items():  # afterwards: it takes time, in which rows are written forward
        for machine in ("left", "right"):
            for job, row, body in await life.kept(machine):
                playing.add(number, "body", (job, row), body or b"")
    playing.done = True
    history.add(Happening(world.now, 0, "settled", members=tuple(playing.lives)))


def stored(life: Life) -> tuple[int, int]:
    """Bytes of the rows that a keeper had time to free and that are not hollow, and how many bytes are live."""
    rows = life.host.disk.read(f"{NAME}/log", life.keeper.ledger.start, life.covered())
    return sum(len(row) for row in rows if row and not head_of(row).hollow), life.hosting.space.live


HOSTS = Scenario(
    "hosts",
    "several machines on one log, transactions, demands and leases, under crashes, bad disks and partitions",
    BEST_EFFORT,
    play,
    {
        "agreement": agreement,
        "one_leader": one_leader,
        "all_or_nothing": all_or_nothing,
        "assigned_once": assigned_once,
        "counted": counted,
        "same_states": same_states,
        "time_never_falls": time_never_falls,
        "bounded": bounded,
        "with_bodies": with_bodies,
    },
    (
        *STRIKES,
        *("unsynced_lost", "torn_write", "bit_flip", "lost_tail", "disk_full"),
    ),
    members_min=3,
    members_max=6,
)
