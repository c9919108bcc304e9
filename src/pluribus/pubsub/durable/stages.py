"""Writers' transactions: parts are staged, become visible together, and are dropped if they are never committed.

A *writer* numbers its batches. Tasks stage rows under an *attempt* of their own; a task that is tried again is another
attempt. When all tasks are done, the writer commits the batch and names the attempts that count. The last committed
batch is remembered, so committing it again, after a restart, changes nothing. Parts that were staged and never
committed are dropped when their lease is over.

Each *query* counts its batches by itself: a streaming query of Spark with a new checkpoint begins at 0 again. Compared
with the numbers of an earlier query, its batches would seem done. So the last batch is remembered for each writer and
query. A second query under a writer's name is refused, unless it asks to begin *anew*; then each has its own memory.

A writer is forgotten when it has committed nothing for as long as it asked to be remembered. Time comes with the
commands.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import msgspec

from ...core.limits import STAGED_BATCHES_MAX
from .commands import AGAIN, DONE, REFUSED, Drop, Outcome, Publish, Stage

WRITERS_MAX = 100_000
"""Writers, and queries of them, whose last batch is remembered."""
KEEP_WRITER_S = 30 * 86_400.0
"""How long a writer that commits nothing any more is remembered, if it does not say otherwise."""
FOR_EVER_US = 1 << 62


class StagedPart(msgspec.Struct, array_like=True):
    """Where a staged batch is in the log."""

    row: int
    place: int
    events: int
    size: int
    latest: int
    topic: bytes
    held: int = 0
    """Bytes of the command that staged it, which stay in the log as long as it is needed."""


class Attempt(msgspec.Struct, array_like=True):
    until: int
    parts: list[StagedPart] = []
    query: str = ""


class QueryMemory(msgspec.Struct, array_like=True):
    """What is remembered of a writer's query."""

    last: int
    """The last batch that it committed."""
    until: int = FOR_EVER_US


Staged = dict[tuple[str, int, str], Attempt]


class Stages:
    def __init__(self) -> None:
        self._attempts: Staged = {}
        self._writers: dict[str, dict[str, QueryMemory]] = {}
        """By writer and query."""
        self._count = 0
        self._remembered = 0
        self._next_end = FOR_EVER_US
        """Nothing is to be forgotten before it."""

    def __len__(self) -> int:
        return self._count

    @property
    def remembered(self) -> int:
        """Writers and queries of them."""
        return self._remembered

    def last(self, writer: str, query: str = "") -> int:
        memory = self._writers.get(writer, {}).get(query)
        return -1 if memory is None else memory.last

    def stage(self, command: Stage, part: StagedPart) -> Outcome:
        last = self.last(command.writer, command.query)
        if command.batch <= last:
            return Outcome(AGAIN, last)
        foreign = self._foreign(command)
        if foreign:
            return Outcome(REFUSED, last, foreign)
        key = (command.writer, command.batch, command.attempt)
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = Attempt(0, [], command.query)
        if command.part < len(attempt.parts):
            return Outcome(AGAIN, len(attempt.parts))
        if command.part > len(attempt.parts):
            return Outcome(REFUSED, len(attempt.parts), f"part {len(attempt.parts)} is next: stage it first")
        if self._count >= STAGED_BATCHES_MAX:
            return Outcome(
                REFUSED, 0, f"{STAGED_BATCHES_MAX:,} batches are staged: commit some, or wait for their lease"
            )
        self._attempts[key] = attempt
        attempt.parts.append(part)
        attempt.until = max(attempt.until, command.at + command.lease_us)
        self._count += 1
        return Outcome(DONE, len(attempt.parts))

    def publish(self, command: Publish) -> tuple[Outcome, list[StagedPart], list[StagedPart]]:
        """The parts to become visible, in order; and those that nobody needs any more."""
        writer, batch, query = command.writer, command.batch, command.query
        last = self.last(writer, query)
        if batch <= last:
            return Outcome(AGAIN, last), [], []
        foreign = self._foreign(command)
        if foreign:
            return Outcome(REFUSED, last, foreign), [], []
        for name, parts in command.attempts:
            attempt = self._attempts.get((writer, batch, name))
            have = 0 if attempt is None or attempt.query != query else len(attempt.parts)
            if have != parts:
                why = f"attempt {name!r} of batch {batch} has {have} parts and not {parts}: stage it again"
                return Outcome(REFUSED, last, why), [], []
        if self._remembered >= WRITERS_MAX and last < 0:
            why = f"{WRITERS_MAX:,} writers are known: use one of their names, or wait until idle ones are forgotten"
            return Outcome(REFUSED, last, why), [], []
        visible = [
            part for name, parts in command.attempts if parts for part in self._attempts[(writer, batch, name)].parts
        ]
        until = command.at + command.keep_us if command.at and command.keep_us else FOR_EVER_US
        self._remember(writer, query, QueryMemory(batch, until))
        gone = self._remove(
            [
                key
                for key, attempt in self._attempts.items()
                if key[0] == writer and key[1] <= batch and attempt.query == query
            ]
        )
        seen = {(part.row, part.place) for part in visible}
        return Outcome(DONE, batch), visible, [part for part in gone if (part.row, part.place) not in seen]

    def _foreign(self, command: Stage | Publish) -> str:
        """Why a query may not write under this name; empty if it may."""
        known = self._writers.get(command.writer)
        if not known or command.query in known or command.anew:
            return ""
        if known.keys() == {""} and command.batch > known[""].last:
            return ""  # what was remembered before queries had identities: it goes on
        last = max(memory.last for memory in known.values())
        return (
            f"the writer {command.writer!r} belongs to another query, which committed batch {last}: go on with the "
            "checkpoint of that query, name another writer, or publish all of it again with the option foreign='begin'"
        )

    def _remember(self, writer: str, query: str, memory: QueryMemory) -> None:
        queries = self._writers.setdefault(writer, {})
        self._remembered += query not in queries
        queries[query] = memory
        self._next_end = min(self._next_end, memory.until)

    def drop(self, command: Drop) -> tuple[Outcome, list[StagedPart]]:
        """The number is that of the attempts that went; and their parts."""
        wanted = (command.writer, command.batch)

        def over(key: tuple[str, int, str], attempt: Attempt) -> bool:
            named = bool(command.writer) and key[:2] == wanted and attempt.query == command.query
            return named or attempt.until <= command.at

        gone = [key for key, attempt in self._attempts.items() if over(key, attempt)]
        parts = self._remove(gone)
        if self._next_end <= command.at:
            self._forget_idle(command.at)
        return Outcome(DONE, len(gone)), parts

    def _forget_idle(self, at: int) -> None:
        writers, self._writers, self._remembered, self._next_end = self._writers, {}, 0, FOR_EVER_US
        for writer, queries in writers.items():
            for query, memory in queries.items():
                if memory.until > at:
                    self._remember(writer, query, memory)

    def due_us(self) -> int:
        """When a lease ends, or a writer is to be forgotten, at the earliest; ``FOR_EVER_US`` if never."""
        return min(self._next_end, *(attempt.until for attempt in self._attempts.values()), FOR_EVER_US)

    def parts_within(self, rows: Container[int]) -> Iterator[tuple[tuple[str, int, str], int, StagedPart]]:
        """What is staged and stands in these rows: whose it is, which part, and where."""
        for key, attempt in self._attempts.items():
            for number, part in enumerate(attempt.parts):
                if part.row in rows:
                    yield key, number, part

    def move(self, writer: str, batch: int, attempt: str, number: int, old_row: int) -> StagedPart | None:
        """The part that is to stand elsewhere from now on, if it is still staged and stands where it was."""
        found = self._attempts.get((writer, batch, attempt))
        if found is None or number >= len(found.parts) or found.parts[number].row != old_row:
            return None
        return found.parts[number]

    def _remove(self, keys: list[tuple[str, int, str]]) -> list[StagedPart]:
        gone: list[StagedPart] = []
        for key in keys:
            gone += self._attempts.pop(key).parts
        self._count -= len(gone)
        return gone

    def saved(self) -> Any:
        known = [(writer, query, memory) for writer, each in self._writers.items() for query, memory in each.items()]
        return (list(self._attempts.items()), [], known)

    def restore(self, saved: Any) -> None:
        attempts, without_query, known = msgspec.convert([*saved, []][:3], _Saved)
        self._attempts = dict(attempts)
        self._count = sum(len(attempt.parts) for attempt in self._attempts.values())
        self._writers, self._remembered, self._next_end = {}, 0, FOR_EVER_US
        for writer, batch in without_query:  # as a snapshot from before queries had identities has them
            self._remember(writer, "", QueryMemory(batch))
        for writer, query, memory in known:
            self._remember(writer, query, memory)


_Saved = tuple[
    list[tuple[tuple[str, int, str], Attempt]],
    list[tuple[str, int]],
    list[tuple[str, str, QueryMemory]],
]
