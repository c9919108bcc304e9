"""Bodies by handle: a machine remembers only where a body stands in the log; the body is read when it is handed out.

Theory of operation
-------------------
A handle is (row, place, piece): the row of the log, the command's place in it, and which of the bodies in that command
(``Machine.pieces`` says what those are). Machines keep handles and no bodies, so a queue of five million messages is
small in memory and in its snapshots.

*At once or later.* Rows that were applied lately are in memory, and their bodies are given at once. Other rows are read
without holding up the loop: in a reader thread on a real disk, after the disk's latency in the simulator. Many handles
are one request. A row that several requests want is read once. Requests take turns, a few rows at a time, so that a
long one does not hold up a short one.

*Gone.* Since its handle was looked up, a body may have been written forward, or be needed no more; its row is then
hollow, or forgotten. Such a body is None: look the handle up again. A keeper that was opened lately, and has not
applied all of its log yet, may name rows that it made hollow itself; their things were settled since. A row that is
damaged here fails the request with ``Damaged``: another keeper has it. For a keeper without others the body is None.

Bounded: ``CACHE_BYTES_MAX`` in memory, ``REQUESTS_MAX`` requests, ``HANDLES_MAX`` handles a request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ...core.errors import BadInput, Closed, MalformedFrame, Overflow, PluribusError
from .words import INNER, Together, word_of

CACHE_BYTES_MAX = 16 << 20
"""Rows with bodies that stay in memory."""
REQUESTS_MAX = 4_096
HANDLES_MAX = 65_536
TURN_ROWS = 16
"""Rows that are read for one request before the next request has its turn."""
READ_ROWS = 64
"""Rows that are read in one go."""
_COMMAND_BYTES = 64
"""About how much memory a command costs besides its bytes."""

Handle = tuple[int, int, int]
"""The row, the command's place in it, and which of the command's bodies."""
Pieces = Callable[[bytes], Sequence[bytes]]
"""The bodies in one command."""
Found = Callable[[Sequence["bytes | None"], "PluribusError | None"], None]
"""Called with the bodies in the order of the handles; or with none, and the reason."""


class Rows(Protocol):
    """Where the rows are: on a keeper, or in memory at a member of a group."""

    def row_at_hand(self, at: int) -> tuple[int, Sequence[bytes]] | None:
        """The machine and the commands of a row that is in memory; no commands if the row is hollow or forgotten.
        None: the row must be read."""

    def fetch_rows(
        self,
        rows: Sequence[int],
        opened: Callable[[int, int, Sequence[bytes]], BodyRow],
        done: Callable[[Sequence[BodyRow | PluribusError]], None],
    ) -> None:
        """Read rows without holding up the loop, and call ``opened(row, machine, commands)`` for each in the reader
        thread. Later ``done`` is called with all results; a row that cannot be read has the reason instead."""


class BodyRow:
    """One row whose bodies are wanted."""

    __slots__ = ("_commands", "_machine", "_pieces", "size")

    def __init__(self, machine: int, commands: Sequence[bytes]) -> None:
        self._machine = machine
        self._commands = commands
        self._pieces: dict[int, Sequence[bytes]] = {}
        """By place, what was taken out of commands before; of a transaction also its commands."""
        self.size = 2 * sum(map(len, commands)) + _COMMAND_BYTES * (len(commands) + 1)

    def pieces(self, place: int, pieces: Pieces) -> Sequence[bytes]:
        """The bodies of the command at a place; none if the row is hollow."""
        found = self._pieces.get(place)
        if found is None:
            command = self._command(place)
            found = self._pieces[place] = () if command is None else pieces(command)
        return found

    def _command(self, place: int) -> bytes | None:
        inner, outer = divmod(place, INNER)
        if outer >= len(self._commands):
            return None
        if not inner:
            return self._commands[outer]
        together = self._pieces.get(outer)
        if together is None:
            together = self._pieces[outer] = _commands_of(self._commands[outer])
        return together[inner - 1] if inner <= len(together) else None


def _commands_of(transaction: bytes) -> Sequence[bytes]:
    try:
        word = word_of(transaction)
    except MalformedFrame:
        return ()
    return [one for _, part in word.parts for one in part] if isinstance(word, Together) else ()


class _Request:
    """Handles that somebody waits for."""

    __slots__ = ("done", "error", "found", "left", "pieces", "rows", "unread")

    def __init__(self, count: int, pieces: Pieces, done: Found) -> None:
        self.pieces = pieces
        self.done = done
        self.found: list[bytes | None] = [None] * count
        self.rows: dict[int, list[tuple[int, int, int]]] = {}
        """By row that is not at hand: places, pieces, and where in ``found`` they belong."""
        self.unread: deque[int] = deque()
        self.left = 0
        self.error: PluribusError | None = None


class Bodies:
    """``code(number)`` gives what takes the bodies out of a machine's commands; the reader thread uses it, too."""

    def __init__(self, rows: Rows, code: Callable[[int], Pieces]) -> None:
        self._rows = rows
        self._code = code
        self.cache_bytes_max = CACHE_BYTES_MAX
        self._cache: dict[int, BodyRow] = {}
        """The least recently used first."""
        self._size = 0
        self._requests: deque[_Request] = deque()
        """Those that have rows which nobody reads yet, in turn."""
        self._waiting: dict[int, list[_Request]] = {}
        """By row that is being read or will be."""
        self._count = 0
        self._reading = False
        self._closed = False
        self.hits = 0
        """Bodies that were at hand."""
        self.reads = 0
        """Rows that had to be read."""

    # What is at hand.

    def applied(self, row: int, machine: int, commands: Sequence[bytes]) -> None:
        """A row with bodies was applied: it will be asked for soon."""
        self._keep(row, BodyRow(machine, commands))

    def at_hand(self, machine: int, handles: Sequence[Handle]) -> list[bytes | None] | None:
        """The bodies, if all of them are in memory."""
        pieces = self._code(machine)
        found: list[bytes | None] = []
        for row, place, piece in handles:
            held = self._row(row)
            if held is None:
                return None
            bodies = held.pieces(place, pieces)
            found.append(bodies[piece] if piece < len(bodies) else None)
        self.hits += len(found)
        return found

    def _row(self, at: int) -> BodyRow | None:
        held = self._cache.get(at)
        if held is not None:
            del self._cache[at]
            self._cache[at] = held
            return held
        known = self._rows.row_at_hand(at)
        if known is None:
            return None
        held = BodyRow(*known)
        self._keep(at, held)
        return held

    def _keep(self, at: int, held: BodyRow) -> None:
        if held.size > self.cache_bytes_max // 4:
            return
        old = self._cache.pop(at, None)
        self._size += held.size - (0 if old is None else old.size)
        self._cache[at] = held
        while self._size > self.cache_bytes_max:
            self._size -= self._cache.pop(next(iter(self._cache))).size

    # What must be read.

    def resolve(self, machine: int, handles: Sequence[Handle], done: Found) -> None:
        """``done`` gets the bodies, in the order of the handles, perhaps before this returns."""
        if self._closed:
            raise Closed("this keeper was stopped: ask another one")
        if len(handles) > HANDLES_MAX:
            raise BadInput(f"{len(handles):,} bodies at once are more than {HANDLES_MAX:,}: ask for some at a time")
        if self._count >= REQUESTS_MAX:
            raise Overflow(f"{REQUESTS_MAX:,} requests wait for bodies from the disk: ask again later")
        request = _Request(len(handles), self._code(machine), done)
        for at, (row, place, piece) in enumerate(handles):
            if row in request.rows:
                request.rows[row].append((place, piece, at))
                continue
            held = self._row(row)
            if held is None:
                request.rows[row] = [(place, piece, at)]
            else:
                bodies = held.pieces(place, request.pieces)
                request.found[at] = bodies[piece] if piece < len(bodies) else None
                self.hits += 1
        if not request.rows:
            done(request.found, None)
            return
        self._count += 1
        request.left = len(request.rows)
        request.unread.extend(row for row in sorted(request.rows) if row not in self._waiting)
        for row in request.rows:
            self._waiting.setdefault(row, []).append(request)
        if request.unread:
            self._requests.append(request)
            self._read()

    def _read(self) -> None:
        if self._reading or not self._requests or self._closed:
            return
        chosen: list[int] = []
        while self._requests and len(chosen) < READ_ROWS:
            request = self._requests.popleft()
            for _ in range(min(TURN_ROWS, len(request.unread))):
                chosen.append(request.unread.popleft())
            if request.unread:
                self._requests.append(request)
        chosen.sort()
        wanted = {
            row: [(place, request.pieces) for request in self._waiting[row] for place, _, _ in request.rows[row]]
            for row in chosen
        }

        def opened(row: int, machine: int, commands: Sequence[bytes]) -> BodyRow:
            held = BodyRow(machine, commands)
            for place, pieces in wanted[row]:
                held.pieces(place, pieces)
            return held

        self._reading = True
        self.reads += len(chosen)
        self._rows.fetch_rows(chosen, opened, lambda found: self._fetched(chosen, found))

    def _fetched(self, rows: Sequence[int], found: Sequence[BodyRow | PluribusError]) -> None:
        self._reading = False
        if self._closed:
            return
        for row, held in zip(rows, found, strict=True):
            if isinstance(held, BodyRow):
                self._keep(row, held)
            for request in self._waiting.pop(row, ()):
                self._answer(request, row, held)
        self._read()

    def _answer(self, request: _Request, row: int, held: BodyRow | PluribusError) -> None:
        places = request.rows.pop(row)
        if isinstance(held, BodyRow):
            for place, piece, at in places:
                bodies = held.pieces(place, request.pieces)
                request.found[at] = bodies[piece] if piece < len(bodies) else None
        else:
            request.error = held
        request.left -= 1
        if not request.left:
            self._count -= 1
            if request.error is None:
                request.done(request.found, None)
            else:
                request.done((), request.error)

    def clear(self) -> None:
        """The state was replaced: what is at hand may be of another log."""
        self._cache.clear()
        self._size = 0

    def close(self) -> None:
        """Those who wait hear of it."""
        self._closed = True
        waiting, self._waiting = self._waiting, {}
        self._requests.clear()
        self.clear()
        for request in _each_once(waiting.values()):
            request.done((), Closed("this keeper was stopped before it had read the bodies: ask another one"))

    def validate(self) -> None:
        """For tests."""
        assert self._size == sum(held.size for held in self._cache.values()) <= self.cache_bytes_max
        assert self._count == len(_each_once(self._waiting.values()))
        unread = [row for request in self._requests for row in request.unread]
        assert len(unread) == len(set(unread)) and set(unread) <= set(self._waiting)


def _each_once(waiting: Iterable[list[_Request]]) -> list[_Request]:
    return list({id(request): request for requests in waiting for request in requests}.values())
