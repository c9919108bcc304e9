"""What a machine on the log host is: a pure function of commands, with its state in parts.

**Pure.** No clock, no chance, no ports. The time is ``ground.now_us``, which comes with the commands. Every table of a
machine has a named limit; at the limit a command is refused, with the remedy.

**All or nothing.** A machine that can take part in transactions has ``prepare``: it sees all commands of one
transaction that are for it, in order, and says why they cannot be done, or what they will do (``Effects``), without
changing anything. ``commit`` does that, and cannot fail. The host prepares in every machine first, then commits in
every one.

**Space.** A machine that reads its commands again (``retains``) names them by row and place, which are the same at
every keeper. It says with ``ground.release`` when it needs some no more; when none of an extent of rows is needed, the
rows become hollow. Of extents with little left the host has the rest written once more: ``forward`` makes the commands
that do it. Whoever needs a body has it read by its handle (``bodies.py``).

**Snapshots.** The state is a set of named parts of at most about 1 MiB. Before a machine changes something it calls
``self.parts.touch(name)``. Equal states must have equal parts: keepers are compared by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ...core.errors import BadInput
from ..once import OrderedSessions
from .bodies import Handle
from .demand import Demands
from .parts import Parts

TICK_THINGS_MAX = 1_000
"""What one tick does at most; what is left falls due again at once."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a transaction cannot be done; the sentence goes to its caller."""

    reason: str


class Effects(msgspec.Struct):
    """What the commands of a transaction will do in one machine, and what each of them answers. Machines derive from
    it."""

    results: list[Any]


class Ground:
    """What the host gives a machine to stand on."""

    __slots__ = ("extent", "index", "now_us", "number", "release", "streams")

    def __init__(
        self,
        number: int,
        release: Callable[[int, int], None],
        extent: Callable[[], int],
        streams: OrderedSessions,
    ) -> None:
        self.extent = extent
        """In which extent of the log the row is that is being applied: a number that is the same for its rows."""
        self.number = number
        self.index = 0
        """Of the command that is being applied; told to machines whose commands are ``identified``."""
        self.now_us = 0
        """The replicated time of the command that is being applied, in microseconds since 1970. It never falls."""
        self.release = release
        """``release(row, size)``: of this row, so many bytes of commands are needed no more."""
        self.streams = streams
        """Which commands of ordered publishers were done: the one table for all machines."""


class Machine:
    """The base of all machines. ``kind`` and ``version`` name the code: a machine is only made when every voter has
    it."""

    kind: ClassVar[str] = ""
    version: ClassVar[int] = 1
    identified: ClassVar[bool] = False
    """Commands come with the identity of a call (``sessions.Command``), and the host does each once."""
    retains: ClassVar[bool] = False
    """Commands are read again: their rows stay until they are released."""
    transactional: ClassVar[bool] = False
    """It has ``prepare`` and ``commit``."""
    bodied: ClassVar[bool] = False
    """Bodies of its commands are asked for by handle: the host keeps those that were applied last in memory."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.parts = Parts(self.encode_part)

    def apply(self, row: int, place: int, command: bytes) -> Any:
        """Do one command, and say what came of it. It must not raise; ``MemoryError`` and the like stop the keeper."""
        raise NotImplementedError

    def prepare(self, row: int, places: Sequence[int], commands: Sequence[bytes]) -> Refusal | Effects:
        """What these commands of one transaction would do together; each has its place in the row. Nothing is
        changed."""
        return Refusal(f"the style {self.kind!r} cannot take part in a transaction")

    def commit(self, effects: Effects) -> None:
        """Do what ``prepare`` said. It cannot fail."""
        raise NotImplementedError

    @staticmethod
    def pieces(command: bytes) -> Sequence[bytes]:
        """The bodies in a command, which handles count from 0: (row, place, piece). A pure function; it is called in
        another thread, too, and must not raise for a command that ``apply`` took."""
        return (command,)

    # Questions.

    def query(self, question: bytes) -> bytes:
        """Answer a question, without changing anything."""
        raise BadInput(f"the style {self.kind!r} answers no questions: use its commands")

    def gauges(self) -> dict[str, int]:
        """How much is in it, for people who look after it."""
        return {}

    # Handing things out.

    demands: Demands | None = None
    """Who wants what, in machines that hand things out."""

    def told(self, thing: int) -> tuple[Sequence[Handle], bytes]:
        """What the consumer that was given a thing is told of it: handles of its bodies, and whatever else."""
        raise NotImplementedError

    def told_many(self, things: Sequence[int]) -> Sequence[tuple[Sequence[Handle], bytes]]:
        """The same of several, which are told together: one may refer to the body of another before it."""
        return [self.told(thing) for thing in things]

    # Time.

    def due_us(self) -> int | None:
        """When something falls due next, in replicated time; None if nothing will. It is asked often."""
        return None

    def tick(self) -> None:
        """Do what is due at ``ground.now_us``, at most ``TICK_THINGS_MAX`` things of it."""

    # Leases.

    def lease_us(self, owner: int) -> int | None:
        """How long an owner may be silent; None if it holds nothing here."""
        return None

    def owners(self) -> Iterable[int]:
        """All who hold a lease here."""
        return ()

    def expire(self, owners: Sequence[int]) -> None:
        """These owners were silent for too long, or left for good: what they held is free."""

    # What is done outside of commands.

    @property
    def busy(self) -> bool:
        """Whether ``chores`` has something to do."""
        return False

    def chores(self) -> list[bytes]:
        """The leader asks for it after commands: a slice of a long search, at most some milliseconds. What it finds is
        commands of this machine, which the leader submits, and ``apply`` checks; nothing is changed here."""
        return []

    # Space.

    def forward(self, rows: Mapping[int, Sequence[bytes]], loose: Mapping[tuple[int, int], bytes]) -> list[bytes]:
        """Commands of this machine that write once more what it still needs of some rows, and then release it there.
        ``rows`` are its own; ``loose`` are commands of transactions, by row and place."""
        return []

    # Snapshots.

    def part_names(self) -> list[str]:
        """Of all parts there are, in an order that depends on the state alone."""
        raise NotImplementedError

    def encode_part(self, name: str) -> bytes:
        raise NotImplementedError

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        """Become what the parts say; no parts are the state before the first command."""
        raise NotImplementedError

    def validate(self) -> None:
        """Assert the invariants; for tests."""
