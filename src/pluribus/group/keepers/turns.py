"""Machines take turns by bytes, so that one with much to write does not hold up the others.

In one turn each machine with waiting commands gets one row of about ``ROW_BYTES``. A machine with a larger single
submission sits out turns for it (deficit round robin, Shreedhar and Varghese 1995). All rows of one turn are one write
and share one fsync.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ...core.errors import PluribusError

ROW_BYTES = 256 << 10
"""A row is closed when it holds so much; one submission may be larger."""
ROW_COMMANDS_MAX = 65_536
Placed = Callable[[int, int, PluribusError | None], None]
Taken = list[tuple[Sequence[bytes], Placed]]


class _Waiting:
    """The waiting commands of one machine. ``debt`` is how many bytes it had above its share."""

    __slots__ = ("debt", "queue")

    def __init__(self) -> None:
        self.queue: deque[tuple[Sequence[bytes], int, Placed]] = deque()
        self.debt = 0


class Turns:
    """``bool`` tells whether anything waits."""

    def __init__(self) -> None:
        self._machines: dict[int, _Waiting] = {}
        """Machines with waiting commands or a debt, in the order of their turns."""
        self._count = 0
        self.turns: dict[int, int] = {}
        """Bytes that each machine had written, for people."""

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, machine: int, commands: Sequence[bytes], size: int, placed: Placed) -> None:
        waiting = self._machines.get(machine)
        if waiting is None:
            waiting = self._machines[machine] = _Waiting()
        waiting.queue.append((commands, size, placed))
        self._count += 1

    def next(self) -> list[tuple[int, Taken]]:
        """The commands of the next write, a row for each machine; never empty while commands wait."""
        rows: list[tuple[int, Taken]] = []
        while not rows and self._count:
            for machine in list(self._machines):
                waiting = self._machines.pop(machine)
                alone = not self._machines and not rows
                if alone:  # nobody waits for the only one
                    waiting.debt = 0
                if waiting.debt >= ROW_BYTES:
                    waiting.debt -= ROW_BYTES
                elif waiting.queue:
                    rows.append((machine, self._row(machine, waiting)))
                if waiting.queue or waiting.debt:
                    self._machines[machine] = waiting
        return rows

    def _row(self, machine: int, waiting: _Waiting) -> Taken:
        taken: Taken = []
        size = count = 0
        queue = waiting.queue
        while queue and size < ROW_BYTES and count < ROW_COMMANDS_MAX:
            commands, some_bytes, placed = queue.popleft()
            taken.append((commands, placed))
            size += some_bytes
            count += len(commands)
        self._count -= len(taken)
        waiting.debt = max(waiting.debt + size - ROW_BYTES, 0)
        self.turns[machine] = self.turns.get(machine, 0) + size
        return taken

    def clear(self) -> list[Placed]:
        """Forget all commands; returns the callers that waited for them."""
        waiting = [placed for one in self._machines.values() for _, _, placed in one.queue]
        self._machines.clear()
        self._count = 0
        return waiting
