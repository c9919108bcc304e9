"""The log host: one log, many named state machines, one order and one fsync for all of them.

Theory of operation
-------------------
Every row of the log is for one machine, whose number is in the row's head; number 0 is the host itself. The host hands
each command to its machine once, in order, and keeps the result for the caller that submitted the command here.

*Numbers.* ``Create`` gives a machine a number. The ``builtin`` machines have theirs from the beginning of the log.

*Code is agreed.* Keepers announce in the log for which kinds of machines they have the code, and in which version. A
machine is made, or its version raised, only when every voter has announced it; until then ``Create`` is refused with
that reason. A keeper with later code runs a machine in the version in use (``Ground.version``), also for commands that
it applies again when it is opened. A keeper that reaches a command of a machine without having its code stops applying
(``halt``): it stores, acknowledges and votes, but neither serves nor leads. An exception that a machine must not raise
(``MemoryError`` and the like) stops the keeper in the same way. It is never an outcome, because another keeper may not
have raised it.

*All or nothing.* ``Together`` carries commands of several machines. The host has each machine prepare its part; if one
refuses, nothing is done anywhere; else all of them commit.

*Once.* Calls and transactions carry (session, sequence); there is one table of them for all machines, and one of
ordered streams. Both are part of the state.

*Time* is that of the row. ``due_us`` says when a machine wants a tick; the leader, who has a clock, submits it.

*Space.* The host counts the bytes of rows and which of them are live (``space``).

*Snapshots.* The parts of the host, then those of each machine, named by its number. The states of keepers are compared
at marks: a keeper that differs from most loads the state anew.

Promises: what a machine answers is a function of the log; a transaction is done in all its machines or in none.
Assumes: machines are pure; the log hands rows over in order, each once a life.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import msgspec

from ...core.errors import BadInput, MalformedFrame
from ..log import STOPS, StateInParts
from ..once import OrderedSessions
from ..sessions import Command, SessionEntry, Sessions
from .bodies import Bodies, Pieces
from .machine import Effects, Ground, Machine, Refusal
from .parts import Parts
from .ports import HostLog
from .space import LogExtents
from .words import (
    AGAIN,
    DONE,
    REFUSED,
    TICK_MACHINES_MAX,
    UNKNOWN,
    Announce,
    Create,
    Expire,
    Outcome,
    Remove,
    Tick,
    Together,
    encode,
    word_of,
)
from .words import HOST as HOST
from .words import INNER as INNER

MACHINES_MAX = 4_096
OUTCOMES_MAX = 1 << 17
"""Outcomes that wait for the callers that submitted the commands."""
STREAMS_MAX = 100_000
STREAM_RESULTS_MAX = 64
SHARDS = 64
"""Parts of each table of sessions."""
SESSIONS_MAX_A_SHARD = 1_024
_CALLS = [f"calls/{shard:02d}" for shard in range(SHARDS)]
_STREAMS = [f"streams/{shard:02d}" for shard in range(SHARDS)]

log_ = logging.getLogger("pluribus")

Code = Callable[[Ground], Machine]


class Hosted(msgspec.Struct):
    """One machine on this host."""

    number: int
    name: str
    kind: str
    version: int
    machine: Machine
    commands: int = 0
    """Commands applied since this process started, for people."""


class _Directory(msgspec.Struct, array_like=True):
    """The part of the state that says which machines exist, and for which each keeper has the code."""

    machines: list[tuple[int, str, str, int]]
    codes: list[tuple[int, dict[str, int]]]
    next: int


_Table = tuple[bytes, bytes]


class Host(StateInParts):
    """``codes`` are the kinds of machines that this process has, by name; ``builtin`` those that every log begins with,
    by their numbers."""

    def __init__(
        self,
        log: HostLog,
        codes: Mapping[str, type[Machine] | Code],
        builtin: Sequence[str] = (),
        space: type[LogExtents] = LogExtents,
    ) -> None:
        self._log = log
        self._space = space
        self._codes = dict(codes)
        self._builtin = tuple(builtin)
        self._outcomes: dict[int, Any] = {}
        self.on_applied: Callable[[], None] = lambda: None
        """After the commands of a row were applied, or the state was replaced."""
        self.on_restored: Callable[[], None] = lambda: None
        """The state was replaced: callers that wait for something in it look again."""
        self._parts = Parts(self._encode_part)
        self._frozen: dict[int, Machine] = {}
        """The machines of the snapshot that is being taken."""
        self.bodies = Bodies(log, self._pieces)
        """Bodies of commands, by handle."""
        self._clear()
        log.on_commit = self._commit

    def _clear(self) -> None:
        self.space = self._space()
        self.streams = OrderedSessions(STREAMS_MAX, STREAM_RESULTS_MAX, self._touch_stream, SHARDS)
        self.calls = [Sessions(SESSIONS_MAX_A_SHARD) for _ in range(SHARDS)]
        self.machines: dict[int, Hosted] = {}
        self._names: dict[str, int] = {}
        self._announced: dict[int, dict[str, int]] = {}
        self._dues: dict[int, int] = {}
        """By machine: when it wants a tick."""
        self._worked: set[int] = set()
        """Machines that may want a tick at another time by now."""
        self.recent: set[int] = set()
        """Machines with commands applied since this was last cleared, for the code that tells consumers."""
        self._next = 1
        for kind in self._builtin:
            self._add(self._next, kind, kind, self.version_of(kind))
            self._next += 1

    # What there is.

    def named(self, name: str) -> Hosted | None:
        number = self._names.get(name)
        return None if number is None else self.machines[number]

    def of_kind(self, kind: str) -> Iterator[Hosted]:
        return (hosted for hosted in self.machines.values() if hosted.kind == kind)

    def version_of(self, kind: str) -> int:
        """The version of the code that this process has for a kind; 0 if it has none."""
        code = self._codes.get(kind)
        return 0 if code is None else int(getattr(code, "version", 1))

    def learn(self, code: type[Machine]) -> None:
        """Add the code of a kind of machine to this process."""
        self._codes.setdefault(code.kind, code)

    def versions(self) -> dict[str, int]:
        """The code that this process has, to be announced."""
        return {kind: self.version_of(kind) for kind in self._codes}

    def announced(self, keeper: int) -> Mapping[str, int]:
        return self._announced.get(keeper, {})

    def take_outcomes(self, first: int, count: int) -> list[Any] | None:
        """Remove and return the results of the commands at these indices; None if they were dropped since."""
        try:
            return [self._outcomes.pop(index) for index in range(first, first + count)]
        except KeyError:
            return None

    def _pieces(self, number: int) -> Pieces:
        hosted = self.machines.get(number)
        if hosted is None:
            raise BadInput(f"there is no machine {number} here: open it again")
        return hosted.machine.pieces

    @property
    def now_us(self) -> int:
        return self._log.time_us

    def due(self, now_us: int) -> list[int]:
        """Machines that want a tick at this time, as many as one tick has room for."""
        self._look_at_dues()
        return [number for number, due_us in self._dues.items() if due_us <= now_us][:TICK_MACHINES_MAX]

    def next_due_us(self) -> int | None:
        """When a machine wants a tick next."""
        self._look_at_dues()
        return min(self._dues.values(), default=None)

    def _work(self, number: int) -> None:
        self._worked.add(number)
        self.recent.add(number)

    def _look_at_dues(self) -> None:
        """Ask the machines with new commands when they want a tick."""
        for number in self._worked:
            hosted = self.machines.get(number)
            due_us = None if hosted is None else hosted.machine.due_us()
            if due_us is None:
                self._dues.pop(number, None)
            else:
                self._dues[number] = due_us
        self._worked.clear()

    # Applying.

    def _commit(self, first: int, commands: Sequence[bytes]) -> None:
        log = self._log
        number, row = log.machine, log.row
        try:
            if number == HOST:
                self._commit_host(row, first, commands)
            else:
                self._commit_machine(number, row, first, commands)
        except Exception as error:
            log_.exception("row %d cannot be applied", row)
            log.halt(f"stopped at row {row}: {type(error).__name__}: {error}")
            return
        outcomes = self._outcomes
        if outcomes and not log.awaits:
            outcomes.clear()  # programs take the outcomes of their commands as soon as these are applied
        if (
            len(outcomes) > OUTCOMES_MAX
        ):  # the oldest go, many at once: the front of a dict is not for taking one by one
            self._outcomes = dict(islice(outcomes.items(), len(outcomes) // 2, None))
        self.on_applied()

    def _commit_machine(self, number: int, row: int, first: int, commands: Sequence[bytes]) -> None:
        hosted = self.machines.get(number)
        size = sum(map(len, commands))
        outcomes = self._outcomes
        if hosted is None:  # it was removed while this was under way
            self._count(row, size, 0)
            refused = Outcome(REFUSED, 0, "this machine was removed, or never made: open it again")
            outcomes.update(dict.fromkeys(range(first, first + len(commands)), refused))
            return
        machine = hosted.machine
        self._work(number)
        self._count(row, size, size if machine.retains else 0)
        machine.ground.now_us = self._log.time_us
        hosted.commands += len(commands)
        if machine.bodied:
            self.bodies.applied(row, number, commands)
        if machine.identified:
            self._call_each(machine, row, first, commands)
        else:
            apply = machine.apply
            for place, command in enumerate(commands):
                outcomes[first + place] = apply(row, place, command)

    def _count(self, row: int, total: int, live: int) -> None:
        self._parts.touch("space")
        self.space.add(row, total, live)

    def _call_each(self, machine: Machine, row: int, first: int, commands: Sequence[bytes]) -> None:
        """Apply commands with identities: each is done once; a repeated one gets the result of the first time."""
        outcomes, ground, apply = self._outcomes, machine.ground, machine.apply
        for place, data in enumerate(commands):
            command = Command.decoded(data)
            if command is None:
                outcomes[first + place] = SessionEntry(False, b"MalformedFrame: this is no call")
                continue
            sessions = self._session(command.session)
            entry = sessions.known(command, 0)
            if entry is None:
                ground.index = first + place
                entry = apply(row, place, command.command)
                sessions.keep(command, entry)
            outcomes[first + place] = entry

    def _session(self, session: int) -> Sessions:
        shard = session % SHARDS
        self._parts.touch(_CALLS[shard])
        return self.calls[shard]

    def _touch_stream(self, shard: int) -> None:
        self._parts.touch(_STREAMS[shard])

    # The host's own commands.

    def _commit_host(self, row: int, first: int, commands: Sequence[bytes]) -> None:
        live = 0
        decoded: list[Any] = []
        for command in commands:
            try:
                word = word_of(command)
            except MalformedFrame as error:
                word = None
                decoded.append(Outcome(REFUSED, 0, str(error)))
            else:
                decoded.append(word)
            if isinstance(word, Together):
                live += self._retained(word)
        self._count(row, sum(map(len, commands)), live)
        for place, word in enumerate(decoded):
            self._outcomes[first + place] = word if isinstance(word, Outcome) else self._do(row, place, word)

    def _retained(self, word: Together) -> int:
        """Bytes of a transaction that its machines may read again; they release what they do not need."""
        return sum(
            sum(map(len, commands))
            for number, commands in word.parts
            if (hosted := self.machines.get(number)) is not None and hosted.machine.retains
        )

    def _do(self, row: int, place: int, word: Any) -> Outcome:
        if isinstance(word, Together):
            return self._together(row, place, word)
        if isinstance(word, Tick):
            for number in word.machines:
                if (hosted := self.machines.get(number)) is not None:
                    self._work(number)
                    hosted.machine.ground.now_us = max(self._log.time_us, hosted.machine.ground.now_us)
                    hosted.machine.tick()
            return Outcome(DONE)
        if isinstance(word, Expire):
            hosted = self.machines.get(word.machine)
            if hosted is not None:
                self._work(word.machine)
                hosted.machine.ground.now_us = self._log.time_us
                hosted.machine.expire(word.owners)
            return Outcome(DONE)
        self._parts.touch("directory")
        if isinstance(word, Announce):
            self._announced.pop(word.keeper, None)
            self._announced[word.keeper] = dict(word.codes)
            while len(self._announced) > MACHINES_MAX:
                del self._announced[next(iter(self._announced))]
            return Outcome(DONE)
        if isinstance(word, Create):
            return self._create(word)
        assert isinstance(word, Remove)
        if word.name not in self._names:
            return Outcome(AGAIN)
        number = self._names.pop(word.name)
        self._work(number)
        del self.machines[number]
        return Outcome(DONE, number)

    def _create(self, word: Create) -> Outcome:
        found = self.named(word.name)
        if found is not None and found.kind != word.kind:
            return Outcome(REFUSED, 0, f"{word.name!r} is a machine of kind {found.kind!r}, not {word.kind!r}")
        if found is not None and found.version >= word.version:
            return Outcome(AGAIN, found.number)
        lacking = [
            keeper for keeper in self._log.applied_voters if self.announced(keeper).get(word.kind, 0) < word.version
        ]
        if lacking:
            who = ", ".join(f"{keeper:x}" for keeper in lacking)
            return Outcome(
                REFUSED,
                0,
                f"keeper {who} has no code of {word.kind!r} in version {word.version}: every voter needs it before it "
                f"can be used; start them with --machine {word.kind}=MODULE:CLASS",
            )
        if found is not None:
            return self._raise(found, word.version)
        if len(self.machines) >= MACHINES_MAX:
            return Outcome(REFUSED, 0, f"{MACHINES_MAX:,} machines are on this log: remove some")
        number = self._next
        self._next += 1
        self._add(number, word.name, word.kind, word.version)
        return Outcome(DONE, number)

    def _raise(self, hosted: Hosted, version: int) -> Outcome:
        """Raise a machine to a later version, which takes over the parts of the earlier one; refused if it cannot."""
        parts = hosted.machine.parts_now()
        machine = self._made(hosted.kind, hosted.number, version)
        if machine is not None:
            try:
                machine.restore(parts)
            except STOPS:
                raise
            except Exception as error:  # noqa: BLE001 - the same everywhere, so it is a result
                why = f"version {version} of {hosted.kind!r} cannot take over the state of version {hosted.version}"
                return Outcome(REFUSED, hosted.number, f"{why}: {type(error).__name__}: {error}")
            hosted.machine = machine
            self._work(hosted.number)
            for name in machine.part_names():
                machine.parts.touch(name)
        hosted.version = version
        return Outcome(DONE, hosted.number)

    def _add(self, number: int, name: str, kind: str, version: int) -> Hosted | None:
        machine = self._made(kind, number, version)
        if machine is None:
            return None
        self._work(number)
        hosted = self.machines[number] = Hosted(number, name, kind, version, machine)
        self._names[name] = number
        return hosted

    def _made(self, kind: str, number: int, version: int) -> Machine | None:
        code = self._codes.get(kind)
        if code is None or self.version_of(kind) < version:
            have = f"version {self.version_of(kind)}" if code is not None else "no version"
            self._log.halt(
                f"has {have} of the machine {kind!r}, and version {version} is in use: start it with that code"
            )
            return None
        return code(Ground(number, self._release, self._extent, self.streams, version))

    def _extent(self) -> int:
        return self.space.last_extent

    def _release(self, row: int, size: int) -> None:
        self._parts.touch("space")
        self.space.release(row, size)

    # Transactions.

    def _together(self, row: int, place: int, word: Together) -> Outcome:
        command = Command(word.session, word.sequence, word.settled, -1, b"")
        sessions = self._session(word.session)
        known = sessions.known(command, 0)
        if known is not None:
            self._release_all(row, word.parts)
            if known.lost:
                return Outcome(UNKNOWN, 0, "the table that knew what became of this transaction is full of later ones")
            return msgspec.structs.replace(_outcome_of(known.result), status=AGAIN if known.fine else REFUSED)
        outcome = self._prepared(row, place, word)
        if outcome.status == REFUSED:
            self._release_all(row, word.parts)
        sessions.keep(command, SessionEntry(outcome.status == DONE, encode(outcome)))
        return outcome

    def _prepared(self, row: int, place: int, word: Together) -> Outcome:
        prepared: list[tuple[Machine, Effects]] = []
        seen: set[int] = set()
        offset = 0
        for number, commands in word.parts:
            hosted = self.machines.get(number)
            if hosted is None:
                return Outcome(REFUSED, 0, f"machine {number} of the transaction is not there: open it again")
            if number in seen:
                return Outcome(REFUSED, 0, f"{hosted.name!r} is in the transaction twice: put its commands together")
            seen.add(number)
            self._work(number)
            hosted.machine.ground.now_us = self._log.time_us
            places = range(inner_place(place, offset), inner_place(place, offset + len(commands)), INNER)
            offset += len(commands)
            effects = hosted.machine.prepare(row, places, commands)
            if isinstance(effects, Refusal):
                return Outcome(REFUSED, number, effects.reason)
            prepared.append((hosted.machine, effects))
        for machine, effects in prepared:
            machine.commit(effects)
        return Outcome(DONE, 0, "", [effects.results for _, effects in prepared])

    def _release_all(self, row: int, parts: Iterable[tuple[int, list[bytes]]]) -> None:
        for number, commands in parts:
            hosted = self.machines.get(number)
            if hosted is not None and hosted.machine.retains:
                self._release(row, sum(map(len, commands)))

    # Snapshots.

    def _encode_part(self, name: str) -> bytes:
        if name == "directory":
            machines = [(one.number, one.name, one.kind, one.version) for one in self.machines.values()]
            return encode(_Directory(machines, list(self._announced.items()), self._next))
        if name == "space":
            return self.space.saved()
        table, _, shard = name.partition("/")
        if table == "streams":
            return self.streams.saved(int(shard))
        return self.calls[int(shard)].saved(b"")

    def freeze(self, known: Collection[str]) -> tuple[Sequence[str], Sequence[str]]:
        had: dict[int, set[str]] = {}
        for name in known:
            whose, _, rest = name.partition("/")
            had.setdefault(int(whose), set()).add(rest)
        own = ["directory", "space"]
        own += [name for name, sessions in zip(_CALLS, self.calls, strict=True) if len(sessions)]
        own += [name for shard, name in enumerate(_STREAMS) if self.streams.count(shard)]
        names = [f"{HOST}/{name}" for name in own]
        due = [f"{HOST}/{name}" for name in self._parts.freeze(own, had.get(HOST, ()))]
        for number, hosted in self.machines.items():
            of_machine = hosted.machine.part_names()
            names += [f"{number}/{name}" for name in of_machine]
            due += [f"{number}/{name}" for name in hosted.machine.parts.freeze(of_machine, had.get(number, ()))]
        self._frozen = {number: hosted.machine for number, hosted in self.machines.items()}
        return names, due

    def whole_part(self, name: str) -> bytes:
        """A part as it is now, changed or not."""
        number, _, rest = name.partition("/")
        return self._encode_part(rest) if int(number) == HOST else self.machines[int(number)].machine.encode_part(rest)

    def part(self, name: str) -> bytes:
        number, _, rest = name.partition("/")
        if int(number) == HOST:
            return self._parts.encoded(rest)
        return self._frozen[int(number)].parts.encoded(rest)

    def thaw(self, kept: bool) -> None:
        self._parts.thaw(kept)
        for machine in self._frozen.values():
            machine.parts.thaw(kept)
        self._frozen = {}

    def restore(self, index: int, parts: Iterable[tuple[str, bytes]]) -> None:
        self._outcomes.clear()
        self.bodies.clear()
        self._clear()
        for number, group in groupby(parts, lambda part: int(part[0].partition("/")[0])):
            named = ((name.partition("/")[2], data) for name, data in group)
            if number == HOST:
                self._restore_own(named)
            elif number in self.machines:
                self.machines[number].machine.restore(named)
        self._parts.clear()
        for hosted in self.machines.values():
            hosted.machine.parts.clear()
        self._worked.update(self.machines)
        self.recent.update(self.machines)
        self.on_restored()
        self.on_applied()

    def _restore_own(self, parts: Iterable[tuple[str, bytes]]) -> None:
        for name, data in parts:
            table, _, shard = name.partition("/")
            if name == "directory":
                directory = msgspec.msgpack.decode(data, type=_Directory)
                self.machines.clear()
                self._names.clear()
                for number, called, kind, version in directory.machines:
                    self._add(number, called, kind, version)
                self._announced = dict(directory.codes)
                self._next = directory.next
            elif name == "space":
                self.space.restore(data)
            elif table == "streams":
                self.streams.restore_shard(int(shard), data)
            else:
                self.calls[int(shard)], _ = Sessions.restored(data, SESSIONS_MAX_A_SHARD)

    def validate(self) -> None:
        """For tests."""
        self._look_at_dues()
        for number, hosted in self.machines.items():
            assert hosted.machine.due_us() == self._dues.get(number), f"machine {number} is due at another time"
        self.space.validate()
        for sessions in self.calls:
            sessions.validate()
        for hosted in self.machines.values():
            hosted.machine.validate()


def inner_place(place: int, number: int) -> int:
    """The place of a command inside the transaction that stands at ``place`` of its row."""
    return (number + 1) * INNER + place


def command_at(commands: Sequence[bytes], place: int) -> bytes:
    """One command of a row, also if it is inside a transaction. ``IndexError`` if there is none."""
    inner, place = divmod(place, INNER)
    command = commands[place]
    if not inner:
        return command
    word = word_of(command)
    if not isinstance(word, Together):
        raise IndexError(f"there is no transaction at place {place}")
    return [one for _, part in word.parts for one in part][inner - 1]


_outcome_of = msgspec.msgpack.Decoder(Outcome).decode
