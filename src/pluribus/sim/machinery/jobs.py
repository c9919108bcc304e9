"""Jobs: a small machine for the log host that uses all of it, to be played by scenarios.

Jobs have bodies, which stay in the log. They are put, perhaps hidden until a time, moved to another machine of jobs in
a transaction, handed to consumers by demand, and settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from ...group.host.bodies import Handle
from ...group.host.demand import UNLIMITED, Demands
from ...group.host.machine import Effects, Ground, Machine, Refusal

LEASE_US = 2_000_000

_encode = msgspec.msgpack.encode
replace = msgspec.structs.replace


class Put(msgspec.Struct, array_like=True, frozen=True, tag=1):
    job: int
    body: bytes


class Take(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A job leaves, to wherever the transaction puts it."""

    job: int


class Attach(msgspec.Struct, array_like=True, frozen=True, tag=3):
    consumer: int
    owner: int


class Want(msgspec.Struct, array_like=True, frozen=True, tag=4):
    consumer: int
    epoch: int
    serial: int
    things: int


class Settle(msgspec.Struct, array_like=True, frozen=True, tag=5):
    consumer: int
    epoch: int
    job: int


class Moved(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """The body of a job once more."""

    job: int
    row: int
    body: bytes


class Wait(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """A job that is hidden until a time."""

    job: int
    until_us: int
    body: bytes


JobCommand = Put | Take | Attach | Want | Settle | Moved | Wait
_command: msgspec.msgpack.Decoder[JobCommand] = msgspec.msgpack.Decoder(JobCommand)


class _Changes(Effects):
    row: int
    taken: list[int]
    put: list[tuple[int, Kept]]


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """A job: where its body is, how long its command is, and how often it was handed out."""

    row: int
    place: int
    size: int
    deliveries: int = 0
    until_us: int = 0
    """It is hidden until then."""

    @property
    def handle(self) -> Handle:
        return (self.row, self.place, 0)


class Jobs(Machine):
    """Jobs with bodies in the log; each is handed to one consumer at a time."""

    kind: ClassVar[str] = "jobs"
    retains: ClassVar[bool] = True
    transactional: ClassVar[bool] = True
    bodied: ClassVar[bool] = True

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._clear()

    def _clear(self) -> None:
        self.jobs: dict[int, Kept] = {}
        """Free ones, in their order."""
        self.held: dict[int, Kept] = {}
        self.done: dict[int, None] = {}
        self.hidden: dict[int, Kept] = {}
        self.demands: Demands = Demands(self.parts)

    @staticmethod
    def pieces(command: bytes) -> Sequence[bytes]:
        found = _command.decode(command)
        return (found.body,) if isinstance(found, (Put, Moved, Wait)) else ()

    def apply(self, row: int, place: int, data: bytes) -> Any:
        try:
            command = _command.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.ground.release(row, len(data))
            return ("refused", str(error))
        self.parts.touch("jobs")
        kept = Kept(row, place, len(data))
        if isinstance(command, (Put, Wait)):
            answer = self._put(command, kept)
        elif isinstance(command, Moved):
            answer = self._moved(command, kept)
        else:
            answer = self._told(command)
        if answer[0] != "kept":
            self.ground.release(row, len(data))
        self._hand_out()
        return answer

    def _known(self, job: int) -> bool:
        return job in self.jobs or job in self.held or job in self.done or job in self.hidden

    def _put(self, command: Put | Wait, kept: Kept) -> tuple[str, int]:
        if self._known(command.job):
            return ("again", 0)
        if isinstance(command, Wait) and command.until_us > self.ground.now_us:
            self.hidden[command.job] = replace(kept, until_us=command.until_us)
        else:
            self.jobs[command.job] = kept
        return ("kept", 0)

    def _moved(self, command: Moved, kept: Kept) -> tuple[str, int]:
        for table in (self.jobs, self.held, self.hidden):
            old = table.get(command.job)
            if old is not None and old.row == command.row:
                table[command.job] = replace(kept, deliveries=old.deliveries, until_us=old.until_us)
                self.ground.release(old.row, old.size)
                return ("kept", 0)
        return ("again", 0)

    def _told(self, command: JobCommand) -> tuple[str, Any]:
        if isinstance(command, Attach):
            consumer = self.demands.attach(command.consumer, command.owner, LEASE_US)
            assert consumer is not None
            return ("attached", consumer.epoch)
        if isinstance(command, Want):
            fine = self.demands.demand(
                command.consumer, command.epoch, command.serial, command.things, 1 << 20, UNLIMITED
            )
            return ("wanted" if fine else "ended", 0)
        if isinstance(command, Settle):
            if self.demands.settle(command.consumer, command.epoch, command.job) is None:
                return ("ended", 0)
            kept = self.held.pop(command.job)
            self.ground.release(kept.row, kept.size)
            self.done[command.job] = None
            return ("settled", 0)
        return ("refused", "only in a transaction")

    def told(self, thing: int) -> tuple[Sequence[Handle], bytes]:
        return [self.held[thing].handle], _encode(self.held[thing].deliveries)

    def query(self, question: bytes) -> bytes:
        """How many jobs are free, held, hidden and done."""
        return _encode([len(table) for table in (self.jobs, self.held, self.hidden, self.done)])

    def _hand_out(self) -> None:
        while self.jobs:
            consumer = self.demands.next()
            if consumer is None:
                return
            job = next(iter(self.jobs))
            kept = self.jobs.pop(job)
            kept = self.held[job] = replace(kept, deliveries=kept.deliveries + 1)
            self.demands.assign(consumer, job, kept.size, kept.deliveries)

    def prepare(self, row: int, places: Sequence[int], commands: Sequence[bytes]) -> Refusal | Effects:
        taken: list[int] = []
        put: list[tuple[int, Kept]] = []
        for place, data in zip(places, commands, strict=True):
            command = _command.decode(data)
            if isinstance(command, Take):
                if command.job not in self.jobs or command.job in taken:
                    return Refusal(f"job {command.job} is not free here")
                taken.append(command.job)
            elif isinstance(command, Put):
                if self._known(command.job):
                    return Refusal(f"job {command.job} is here already")
                put.append((command.job, Kept(row, place, len(data))))
            else:
                return Refusal("a transaction takes and puts jobs")
        results = ["taken"] * len(taken) + ["put"] * len(put)
        return _Changes(results, row, taken, put)

    def commit(self, effects: Effects) -> None:
        assert isinstance(effects, _Changes)
        self.parts.touch("jobs")
        for job in effects.taken:
            kept = self.jobs.pop(job)
            self.done[job] = None
            self.ground.release(kept.row, kept.size)
            self.ground.release(effects.row, len(_encode(Take(job))))
        for job, kept in effects.put:
            self.jobs[job] = kept
        self._hand_out()

    def due_us(self) -> int | None:
        return min((kept.until_us for kept in self.hidden.values()), default=None)

    def tick(self) -> None:
        self.parts.touch("jobs")
        for job in [job for job, kept in self.hidden.items() if kept.until_us <= self.ground.now_us]:
            self.jobs[job] = replace(self.hidden.pop(job), until_us=0)
        self._hand_out()

    def owners(self) -> Iterable[int]:
        return self.demands.owners()

    def lease_us(self, owner: int) -> int | None:
        return self.demands.lease_us(owner)

    def expire(self, owners: Sequence[int]) -> None:
        self.parts.touch("jobs")
        for held in self.demands.expire(owners).values():
            for job in held:
                self.jobs[job] = self.held.pop(job)
        self._hand_out()

    def forward(self, rows: Any, loose: Any) -> list[bytes]:
        bodies: dict[tuple[int, int], bytes] = dict(loose)
        for row, held in rows.items():
            bodies |= {(row, place): one for place, one in enumerate(held)}
        return [
            _encode(Moved(job, kept.row, self.pieces(bodies[(kept.row, kept.place)])[0]))
            for job, kept in self.kept()
            if (kept.row, kept.place) in bodies
        ]

    def kept(self) -> list[tuple[int, Kept]]:
        """Every job that is not done."""
        return [*self.jobs.items(), *self.held.items(), *self.hidden.items()]

    def overdue(self) -> list[int]:
        """Jobs that are hidden although their time has come; for checks when nothing is under way."""
        return [job for job, kept in self.hidden.items() if kept.until_us <= self.ground.now_us]

    def part_names(self) -> list[str]:
        return ["jobs", *self.demands.part_names()]

    def encode_part(self, name: str) -> bytes:
        if name != "jobs":
            return self.demands.encode_part(name)
        tables = (self.jobs, self.held, self.hidden)
        return _encode(([list(table.items()) for table in tables], list(self.done)))

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self._clear()
        for name, data in parts:
            if name == "jobs":
                (jobs, held, hidden), done = msgspec.msgpack.decode(data, type=_Saved)
                self.jobs, self.held, self.hidden = dict(jobs), dict(held), dict(hidden)
                self.done = dict.fromkeys(done)
            else:
                self.demands.restore_part(name, data)
        self.demands.restored()

    def validate(self) -> None:
        self.demands.validate()
        held = {job for consumer in self.demands.consumers.values() for job in consumer.held}
        assert held == set(self.held), f"held {held} and {set(self.held)}"


_Rows = list[tuple[int, Kept]]
_Saved = tuple[tuple[_Rows, _Rows, _Rows], list[int]]
