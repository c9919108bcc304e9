"""Writers' transactions: parts that are staged, become visible at once, and are dropped when nobody wants them.

A *writer* (one streaming query, say) numbers its batches. Tasks stage rows under an *attempt* of their own; a task that
is tried again is another attempt. When all tasks are done, the writer commits the batch and names the attempts that
count. The last committed batch of each writer is remembered, so committing it again, after a restart, changes nothing.
What was staged and never committed goes when its lease is over.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...core.limits import STAGED_BATCHES_MAX
from .commands import AGAIN, DONE, REFUSED, Drop, Outcome, Publish, Stage

WRITERS_MAX = 100_000


class Part(msgspec.Struct, array_like=True):
    """Where a staged batch is in the log."""

    row: int
    place: int
    events: int
    size: int
    latest: int
    topic: bytes


class Attempt(msgspec.Struct, array_like=True):
    until: int
    parts: list[Part] = []


Staged = dict[tuple[str, int, str], Attempt]


class Stages:
    def __init__(self) -> None:
        self._attempts: Staged = {}
        self._committed: dict[str, int] = {}
        """The last batch of each writer."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def last(self, writer: str) -> int:
        return self._committed.get(writer, -1)

    def stage(self, command: Stage, part: Part) -> Outcome:
        if command.batch <= self.last(command.writer):
            return Outcome(AGAIN, self.last(command.writer))
        key = (command.writer, command.batch, command.attempt)
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = Attempt(0, [])
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

    def publish(self, command: Publish) -> tuple[Outcome, list[Part]]:
        """The parts to become visible, in order."""
        writer, batch = command.writer, command.batch
        last = self.last(writer)
        if batch <= last:
            return Outcome(AGAIN, last), []
        for name, parts in command.attempts:
            attempt = self._attempts.get((writer, batch, name))
            have = 0 if attempt is None else len(attempt.parts)
            if have != parts:
                why = f"attempt {name!r} of batch {batch} has {have} parts and not {parts}: stage it again"
                return Outcome(REFUSED, last, why), []
        if len(self._committed) >= WRITERS_MAX and writer not in self._committed:
            return Outcome(REFUSED, last, f"{WRITERS_MAX:,} writers are known: use one of their names"), []
        visible = [
            part for name, parts in command.attempts if parts for part in self._attempts[(writer, batch, name)].parts
        ]
        self._committed[writer] = batch
        self._remove([key for key in self._attempts if key[0] == writer and key[1] <= batch])
        return Outcome(DONE, batch), visible

    def drop(self, command: Drop) -> Outcome:
        def over(key: tuple[str, int, str], attempt: Attempt) -> bool:
            return attempt.until <= command.at or (bool(command.writer) and key[:2] == (command.writer, command.batch))

        gone = [key for key, attempt in self._attempts.items() if over(key, attempt)]
        self._remove(gone)
        return Outcome(DONE, len(gone))

    def overdue(self, at: int) -> bool:
        return any(attempt.until <= at for attempt in self._attempts.values())

    def first_row(self) -> int | None:
        """What was staged must stay in the log."""
        rows = [part.row for attempt in self._attempts.values() for part in attempt.parts]
        return min(rows, default=None)

    def _remove(self, keys: list[tuple[str, int, str]]) -> None:
        for key in keys:
            self._count -= len(self._attempts.pop(key).parts)

    def saved(self) -> Any:
        return (list(self._attempts.items()), list(self._committed.items()))

    def restore(self, saved: Any) -> None:
        shape = tuple[list[tuple[tuple[str, int, str], Attempt]], list[tuple[str, int]]]
        attempts, committed = msgspec.convert(saved, shape)
        self._attempts, self._committed = dict(attempts), dict(committed)
        self._count = sum(len(attempt.parts) for attempt in self._attempts.values())
