"""Jobs: a small machine for the log host that uses all of it, to be played by scenarios.

Jobs have bodies, which stay in the log. They are put, perhaps hidden until a time, moved to another machine of jobs in
a transaction, handed to consumers by demand, and settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from ...core.errors import MalformedFrame
from ...group.host.demand import UNLIMITED, Demands
from ...group.host.machine import Effects, Ground, Machine, Refusal
from ...group.host.words import Together, word_of

LEASE_US = 2_000_000

_encode = msgspec.msgpack.encode


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
    taken: list[int]
    put: list[tuple[int, int, int]]


class Jobs(Machine):
    """Jobs with bodies in the log; each is handed to one consumer at a time."""

    kind: ClassVar[str] = "jobs"
    retains: ClassVar[bool] = True
    transactional: ClassVar[bool] = True

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._clear()

    def _clear(self) -> None:
        self.jobs: dict[int, tuple[int, int, int]] = {}
        """Free ones, in their order: row, size, deliveries."""
        self.held: dict[int, tuple[int, int, int]] = {}
        self.done: dict[int, None] = {}
        self.hidden: dict[int, tuple[int, int, int]] = {}
        """Until when, row, size."""
        self.demands = Demands(self.parts)

    def apply(self, row: int, place: int, data: bytes) -> Any:
        try:
            command = _command.decode(data)
        except msgspec.MsgspecError as error:
            self.ground.release(row, len(data))
            return ("refused", str(error))
        self.parts.touch("jobs")
        if isinstance(command, (Put, Wait)):
            answer = self._put(command, row, len(data))
        elif isinstance(command, Moved):
            answer = self._moved(command, row, len(data))
        else:
            answer = self._told(command)
        if answer[0] != "kept":
            self.ground.release(row, len(data))
        self._hand_out()
        return answer

    def _known(self, job: int) -> bool:
        return job in self.jobs or job in self.held or job in self.done or job in self.hidden

    def _put(self, command: Put | Wait, row: int, size: int) -> tuple[str, int]:
        if self._known(command.job):
            return ("again", 0)
        if isinstance(command, Wait) and command.until_us > self.ground.now_us:
            self.hidden[command.job] = (command.until_us, row, size)
        else:
            self.jobs[command.job] = (row, size, 0)
        return ("kept", 0)

    def _moved(self, command: Moved, row: int, size: int) -> tuple[str, int]:
        for table in (self.jobs, self.held):
            if command.job in table and table[command.job][0] == command.row:
                old_row, old_size, deliveries = table[command.job]
                table[command.job] = (row, size, deliveries)
                self.ground.release(old_row, old_size)
                return ("kept", 0)
        if command.job in self.hidden and self.hidden[command.job][1] == command.row:
            until_us, old_row, old_size = self.hidden[command.job]
            self.hidden[command.job] = (until_us, row, size)
            self.ground.release(old_row, old_size)
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
            row, size, _ = self.held.pop(command.job)
            self.ground.release(row, size)
            self.done[command.job] = None
            return ("settled", 0)
        return ("refused", "only in a transaction")

    def _hand_out(self) -> None:
        while self.jobs:
            consumer = self.demands.next()
            if consumer is None:
                return
            job = next(iter(self.jobs))
            row, size, deliveries = self.jobs.pop(job)
            self.held[job] = (row, size, deliveries + 1)
            self.demands.assign(consumer, job, size, deliveries + 1)

    def prepare(self, row: int, places: Sequence[int], commands: Sequence[bytes]) -> Refusal | Effects:
        taken: list[int] = []
        put: list[tuple[int, int, int]] = []
        for command, data in ((_command.decode(one), one) for one in commands):
            if isinstance(command, Take):
                if command.job not in self.jobs or command.job in taken:
                    return Refusal(f"job {command.job} is not free here")
                taken.append(command.job)
            elif isinstance(command, Put):
                if self._known(command.job):
                    return Refusal(f"job {command.job} is here already")
                put.append((command.job, row, len(data)))
            else:
                return Refusal("a transaction takes and puts jobs")
        results = ["taken"] * len(taken) + ["put"] * len(put)
        return _Changes(results, taken, put)

    def commit(self, effects: Effects) -> None:
        assert isinstance(effects, _Changes)
        self.parts.touch("jobs")
        for job in effects.taken:
            row, size, _ = self.jobs.pop(job)
            self.done[job] = None
            self.ground.release(row, size)
            self.ground.release(self.row_of_commit, len(_encode(Take(job))))
        for job, row, size in effects.put:
            self.jobs[job] = (row, size, 0)
        self._hand_out()

    row_of_commit = 0

    def due_us(self) -> int | None:
        return min((until for until, _, _ in self.hidden.values()), default=None)

    def tick(self) -> None:
        self.parts.touch("jobs")
        for job in [job for job, (until, _, _) in self.hidden.items() if until <= self.ground.now_us]:
            _, row, size = self.hidden.pop(job)
            self.jobs[job] = (row, size, 0)
        self._hand_out()

    def owners(self) -> Iterable[int]:
        return self.demands.owners()

    def lease_us(self, owner: int) -> int | None:
        return self.demands.owners().get(owner)

    def expire(self, owners: Sequence[int]) -> None:
        self.parts.touch("jobs")
        for held in self.demands.expire(owners).values():
            for job in held:
                self.jobs[job] = self.held.pop(job)
        self._hand_out()

    def forward(self, rows: Any, loose: Any) -> list[bytes]:
        places = {*rows, *(row for row, _ in loose)}
        bodies: dict[tuple[int, int], bytes] = {}
        for row, held in rows.items():
            for one in held:
                command = _command.decode(one)
                if isinstance(command, (Put, Moved, Wait)):
                    bodies[(row, command.job)] = command.body
        for (row, _), one in loose.items():
            command = _command.decode(one)
            if isinstance(command, Put):
                bodies[(row, command.job)] = command.body
        wanted = [(job, row) for job, row in self.rows() if row in places]
        return [_encode(Moved(job, row, bodies[(row, job)])) for job, row in wanted if (row, job) in bodies]

    def rows(self) -> list[tuple[int, int]]:
        """Every job that is not done, and the row that has its body."""
        found = [(job, row) for job, (row, _, _) in [*self.jobs.items(), *self.held.items()]]
        return found + [(job, row) for job, (_, row, _) in self.hidden.items()]

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


def bodies_of(held: Sequence[bytes]) -> dict[int, bytes]:
    """The bodies of jobs in a row, by job, also those inside transactions."""
    found: dict[int, bytes] = {}
    for one in held:
        try:
            word = word_of(one)
        except MalformedFrame:
            word = None
        inner = [data for _, part in word.parts for data in part] if isinstance(word, Together) else [one]
        for data in inner:
            try:
                command = _command.decode(data)
            except msgspec.MsgspecError:
                continue
            if isinstance(command, (Put, Moved, Wait)):
                found[command.job] = command.body
    return found


_Row = tuple[int, tuple[int, int, int]]
_Saved = tuple[tuple[list[_Row], list[_Row], list[_Row]], list[int]]
