"""The list of transactions as a machine on the log host. Source: chapter on indirect communication, 6.4.1.

Theory of operation
-------------------
A transaction is committed by one command of the host (``Together``), which
carries the changes of every queue, topic and space, and a ``Commit`` for this machine. All of them prepare, then all of
them apply the changes; or none.

So most transactions are known here only from the moment of their commit. A transaction is known earlier if several
processes act in it, or if it is prepared for a decision from outside:

==============  ==============================================  =====================================
state           what is here                                    how it ends
==============  ==============================================  =====================================
``unknown``     nothing; what it does is with who does it       Commit, Abort
``acting``      what others than the committer put into it      Commit, Abort, its lease
``prepared``    what a commit, and an abort, will do            Commit, Abort, by any program
``committed``,  its number                                      forgotten, when many ended after it
``aborted``
==============  ==============================================  =====================================

*Once.* Ended transactions are remembered, so a repeated commit, by any process, is refused, with the outcome. *Whole.*
Each action that is put into a transaction raises its version; a commit names the version that it has seen, and is
refused if an action came since. So no action of any process is left out.

Bounded: see the limits; at each the command is refused, with the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from ..core.errors import MalformedFrame
from ..group.host.machine import TICK_THINGS_MAX, Effects, Ground, Machine, Refusal
from . import words
from .words import (
    ABORTED,
    ACTING,
    AGAIN,
    COMMITTED,
    DONE,
    ENDED,
    PREPARED,
    REFUSED,
    UNKNOWN,
    Outcome,
    Parts,
    Shown,
)

ACTING_MAX = 10_000
ENDED_MAX = 100_000
"""Ended transactions that are remembered."""
PUT_BYTES_MAX = 16 << 20
"""Bytes of commands in one transaction."""
ALL_BYTES_MAX = 256 << 20
"""Bytes of commands in all of them."""
ACTORS_MAX = 1_024
SHARDS = 64
MOVED = "others acted in the transaction meanwhile"


class Acting(msgspec.Struct, array_like=True):
    id: int
    lease_us: int
    """The lease, from the last word on; 0: the transaction is prepared."""
    until_us: int
    since_us: int
    version: int = 0
    put: dict[int, Parts] = {}
    """By acting process."""
    abort: Parts = []

    @property
    def prepared(self) -> bool:
        return not self.lease_us

    @property
    def size(self) -> int:
        return sum(_size(parts) for parts in self.put.values()) + _size(self.abort)


def _size(parts: Parts) -> int:
    return sum(len(name) + sum(map(len, commands)) for name, commands in parts)


class _Ends(Effects):
    commands: list[words.Prepare | words.Commit | words.Abort]


class Transactions(Machine):
    """All transactions of one log."""

    kind: ClassVar[str] = "transactions"
    version: ClassVar[int] = 1
    transactional: ClassVar[bool] = True

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._clear()

    def _clear(self) -> None:
        self.acting: dict[int, Acting] = {}
        self.ended: dict[int, bool] = {}
        """In the order of their ends: true if committed."""
        self._blocks: dict[int, list[int]] = {}
        """Ended transactions, by part of the snapshot."""
        self._block = 0
        self.size_bytes = 0

    # Commands.

    def apply(self, row: int, place: int, command: bytes) -> Outcome:
        try:
            asked = words.command_of(command)
        except MalformedFrame as error:
            return Outcome(REFUSED, str(error))
        if isinstance(asked, words.Join):
            return self._join(asked)
        if isinstance(asked, words.Put):
            return self._put(asked)
        if isinstance(asked, words.Abort):
            return self._abort(asked)
        return Outcome(REFUSED, "a transaction is prepared and committed together with what it does")

    def state(self, id: int) -> str:
        found = self.acting.get(id)
        if found is not None:
            return PREPARED if found.prepared else ACTING if found.until_us > self.ground.now_us else ABORTED
        if id in self.ended:
            return COMMITTED if self.ended[id] else ABORTED
        return UNKNOWN

    def _join(self, asked: words.Join) -> Outcome:
        state = self.state(asked.id)
        if state in (PREPARED, COMMITTED, ABORTED):
            return Outcome(ENDED, state)
        now_us = self.ground.now_us
        found = self.acting.get(asked.id)
        if found is None:
            if len(self.acting) >= ACTING_MAX:
                return Outcome(REFUSED, f"{ACTING_MAX:,} transactions are shared or prepared: end some")
            found = self.acting[asked.id] = Acting(asked.id, asked.lease_us, 0, now_us, put={})
        self._touch(asked.id)
        found.lease_us = asked.lease_us
        found.until_us = max(found.until_us, now_us + asked.lease_us)
        return Outcome(DONE)

    def _put(self, asked: words.Put) -> Outcome:
        state = self.state(asked.id)
        if state != ACTING:
            return Outcome(ENDED, state)
        found = self.acting[asked.id]
        if found.put.get(asked.actor) == asked.parts:
            return Outcome(AGAIN)
        more = _size(asked.parts) - _size(found.put.get(asked.actor, []))
        if found.size + more > PUT_BYTES_MAX or len(found.put) >= ACTORS_MAX:
            return Outcome(
                REFUSED, f"{PUT_BYTES_MAX:,} bytes, or {ACTORS_MAX} who act, are all of a transaction: split it"
            )
        if self.size_bytes + more > ALL_BYTES_MAX:
            return Outcome(REFUSED, f"{ALL_BYTES_MAX:,} bytes are in transactions that are shared: end some")
        self._touch(asked.id)
        self.size_bytes += more
        found.put[asked.actor] = asked.parts
        found.version += 1
        return Outcome(DONE)

    def _abort(self, asked: words.Abort) -> Outcome:
        state = self.state(asked.id)
        if state == COMMITTED or (state == PREPARED and not asked.prepared):
            return Outcome(ENDED, state)
        if asked.id in self.ended:
            return Outcome(AGAIN)
        self._end(asked.id, False)
        return Outcome(DONE)

    def _end(self, id: int, committed: bool) -> None:
        self._forget(id)
        if len(self._blocks.setdefault(self._block, [])) >= ENDED_MAX // SHARDS:
            self._block += 1
        self._blocks.setdefault(self._block, []).append(id)
        self.parts.touch(f"ended/{self._block:08d}")
        self.parts.touch("block")
        self.ended[id] = committed
        while len(self.ended) > ENDED_MAX:
            oldest = min(self._blocks)
            for one in self._blocks.pop(oldest):
                self.ended.pop(one, None)
            self.parts.gone(f"ended/{oldest:08d}")

    def _forget(self, id: int) -> None:
        found = self.acting.pop(id, None)
        if found is not None:
            self._touch(id)
            self.size_bytes -= found.size

    def _touch(self, id: int) -> None:
        self.parts.touch(f"acting/{id % SHARDS:02d}")

    # Together with others.

    def prepare(self, row: int, places: Sequence[int], commands: Sequence[bytes]) -> Refusal | Effects:
        asked: list[words.Prepare | words.Commit | words.Abort] = []
        seen: set[int] = set()
        for data in commands:
            try:
                command = words.command_of(data)
            except MalformedFrame as error:
                return Refusal(str(error))
            if not isinstance(command, words.Prepare | words.Commit | words.Abort) or command.id in seen:
                return Refusal("a transaction is joined before it is committed, and ends once")
            seen.add(command.id)
            refusal = self._refusal(command)
            if refusal is not None:
                return refusal
            asked.append(command)
        return _Ends([Outcome(DONE) for _ in asked], asked)

    def _refusal(self, command: words.Prepare | words.Commit | words.Abort) -> Refusal | None:
        state = self.state(command.id)
        if state in (COMMITTED, ABORTED):
            return Refusal(f"the transaction is {state}")
        if isinstance(command, words.Abort):
            return None if state == PREPARED else Refusal("the transaction is not prepared")
        found = self.acting.get(command.id)
        if command.version != (0 if found is None else found.version):
            return Refusal(MOVED)
        if isinstance(command, words.Prepare):
            if found is None or found.prepared:
                return Refusal(f"the transaction is {state}: it is prepared once, after somebody has joined it")
            more = _size(command.commit) + _size(command.abort)
            if more > 2 * PUT_BYTES_MAX or self.size_bytes + more > ALL_BYTES_MAX:
                return Refusal(f"{more:,} bytes cannot be kept for a prepared transaction: split it")
        return None

    def commit(self, effects: Effects) -> None:
        assert isinstance(effects, _Ends)
        for command in effects.commands:
            if not isinstance(command, words.Prepare):
                self._end(command.id, isinstance(command, words.Commit))
                continue
            found = self.acting[command.id]
            self._touch(command.id)
            self.size_bytes -= found.size
            found.lease_us = found.until_us = 0
            found.version += 1
            found.put, found.abort = {1: command.commit}, command.abort
            self.size_bytes += found.size

    # Questions.

    def query(self, question: bytes) -> bytes:
        asked = words.question_of(question)
        if isinstance(asked, words.Show):
            return words.encode(self._shown(asked.id, True))
        listed = [self._shown(id, False) for id, one in self.acting.items() if one.prepared or not asked.prepared]
        return words.encode(sorted(listed, key=lambda one: (one.since_us, one.id)))

    def _shown(self, id: int, whole: bool) -> Shown:
        found, state = self.acting.get(id), self.state(id)
        if found is None:
            return Shown(id, state)
        parts = [part for actor in sorted(found.put) for part in found.put[actor]]
        machines = sorted({name for name, _ in (*parts, *found.abort)})
        told = (parts, found.abort) if whole else ([], [])
        return Shown(id, state, found.version, found.since_us, found.until_us, *told, machines)

    # Time.

    def due_us(self) -> int | None:
        return min((one.until_us for one in self.acting.values() if not one.prepared), default=None)

    def tick(self) -> None:
        now_us = self.ground.now_us
        late = sorted(id for id, one in self.acting.items() if not one.prepared and one.until_us <= now_us)
        for id in late[:TICK_THINGS_MAX]:
            self._end(id, False)

    # Snapshots.

    def part_names(self) -> list[str]:
        shards = sorted({id % SHARDS for id in self.acting})
        return [
            "block",
            *(f"acting/{shard:02d}" for shard in shards),
            *(f"ended/{block:08d}" for block in sorted(self._blocks) if self._blocks[block]),
        ]

    def encode_part(self, name: str) -> bytes:
        kind, _, number = name.partition("/")
        if kind == "block":
            return words.encode(self._block)
        if kind == "ended":
            return words.encode([(id, self.ended[id]) for id in self._blocks.get(int(number), ())])
        of_shard = sorted(id for id in self.acting if id % SHARDS == int(number))
        return words.encode([_saved(self.acting[id]) for id in of_shard])

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self._clear()
        for name, data in sorted(parts):
            kind, _, number = name.partition("/")
            if kind == "block":
                self._block = msgspec.msgpack.decode(data, type=int)
            elif kind == "ended":
                ended = msgspec.msgpack.decode(data, type=list[tuple[int, bool]])
                self._blocks[int(number)] = [id for id, _ in ended]
                self.ended.update(ended)
            else:
                for one in msgspec.msgpack.decode(data, type=list[Acting]):
                    self.acting[one.id] = one
        self.size_bytes = sum(one.size for one in self.acting.values())

    def validate(self) -> None:
        assert self.size_bytes == sum(one.size for one in self.acting.values())
        assert len(self.acting) <= ACTING_MAX and not self.acting.keys() & self.ended.keys()
        assert sorted(self.ended) == sorted(id for block in self._blocks.values() for id in block)


def _saved(one: Acting) -> Any:
    """The state in one form: equal states have equal parts, in whatever order their actions came."""
    put = dict(sorted(one.put.items()))
    return (one.id, one.lease_us, one.until_us, one.since_us, one.version, put, one.abort)
