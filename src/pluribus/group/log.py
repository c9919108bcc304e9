"""The log port, between a replica and the log that puts its commands in order.

Two logs implement it. The ``safe`` order of a group is volatile: it lives while the primary lives. The keepers' log is
durable: committed commands are on the disks of most voters. A state machine does not know which log it is on.

Commands are bytes with consecutive indices from 0, the same at every replica. A log hands each command to each replica
once, in order, and hands over whole batches, because a call for every command would decide the speed of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from ..core.errors import PluribusError

Done = Callable[[int, PluribusError | None], None]
"""``done(index, None)``: the first of the commands has this index, the others follow it, and ``on_commit`` was called
with all of them here. ``done(-1, Uncertain(...))``: they may be committed, now or later, or never. ``done(-1, error)``
with any other error: they will never be committed. It is called once, and never before ``submit`` has returned."""


class LogPort(Protocol):
    """An ordered log of commands. The owner sets the three call-backs before the log is started."""

    on_commit: Callable[[int, Sequence[bytes]], None]
    """Called with the first index and the commands in order: apply them. It must not raise: a replica that fails on a
    command that others applied differs from them."""
    on_snapshot: Callable[[], bytes]
    """The state after everything that ``on_commit`` and ``on_restore`` have brought so far."""
    on_restore: Callable[[int, bytes], None]
    """Forget everything and take this state, which holds all commands below the index; the next ``on_commit`` starts
    with that index. Empty bytes with index 0 are the state before the first command."""

    @property
    def applied(self) -> int:
        """The index after the last command that was handed to ``on_commit``."""

    def submit(self, command: bytes, done: Done) -> None:
        """Have one command ordered. Raises ``Overflow`` when too many wait, ``TooLarge``, or ``Closed``; then ``done``
        is not called."""

    def submit_many(self, commands: Sequence[bytes], done: Done) -> None:
        """Like ``submit`` for a list, at the price of one: they are ordered together, at consecutive indices, all or
        none, with one completion."""

    def barrier(self, done: Done) -> None:
        """Call ``done`` when everything that was committed anywhere before this call is applied here. A read of the
        state is not stale then. The index is ``applied`` at that moment."""


class StateMachine(Protocol):
    """A state machine as a style or a user writes it: a pure function of the commands. No clock, no randomness, no
    ports."""

    def apply(self, index: int, command: bytes) -> bytes:
        """Change the state; the caller that submitted the command gets the result."""

    def snapshot(self) -> bytes: ...

    def restore(self, state: bytes) -> None:
        """Become what ``snapshot`` gave; empty bytes are the state before the first command."""


STOPS = (MemoryError, RecursionError, SystemError)
"""Exceptions of a machine that depend on the process and not on the command. They are no outcome, because other
replicas may not have raised them: a keeper stops applying, a member leaves the replica."""


class StateInParts(Protocol):
    """A state that is kept and handed over in named parts, so that nothing of the size of the whole is built at once.

    Between ``freeze`` and ``thaw`` commands go on to be applied; ``part`` still gives what was there at ``freeze``.
    Parts with the same content must have the same bytes at every replica: states are compared by them.
    """

    def freeze(self, known: Collection[str]) -> tuple[Sequence[str], Sequence[str]]:
        """The names of all parts there are now, and of those that are due: they changed since the last snapshot that
        was kept, or are not among the ``known`` ones, which that snapshot has."""

    def part(self, name: str) -> bytes:
        """One of the parts that are due, as it was at ``freeze``; each is asked for once, in the order of the names."""

    def thaw(self, kept: bool) -> None:
        """The snapshot was kept, or not; if not, the changed parts belong to the next one."""

    def restore(self, index: int, parts: Iterable[tuple[str, bytes]]) -> None:
        """Forget everything and take this state, which holds all commands below the index. No parts are the state
        before the first command. ``parts`` may raise ``Damaged``; then the state is restored once more, from none."""


PART_BYTES = 1 << 20
"""About how large a part of a state may be."""


class PlainState:
    """A state that is one piece of bytes, cut into parts. Making the piece takes one turn, however long it is."""

    def __init__(self, snapshot: Callable[[], bytes], restore: Callable[[int, bytes], None]) -> None:
        self._snapshot = snapshot
        self._restore = restore
        self._frozen = b""

    def freeze(self, known: Collection[str]) -> tuple[Sequence[str], Sequence[str]]:
        self._frozen = self._snapshot()
        names = [f"{number:08d}" for number in range((len(self._frozen) + PART_BYTES - 1) // PART_BYTES)]
        return names, names

    def part(self, name: str) -> bytes:
        return self._frozen[int(name) * PART_BYTES : (int(name) + 1) * PART_BYTES]

    def thaw(self, kept: bool) -> None:
        self._frozen = b""

    def restore(self, index: int, parts: Iterable[tuple[str, bytes]]) -> None:
        self._restore(index, b"".join(data for _, data in parts))
