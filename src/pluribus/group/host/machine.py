"""What a machine on the log host is: a pure function of commands, with its state in parts.

**Pure.** No clock, no chance, no ports. The time is ``ground.now_us``, which comes with the commands. Every table of a
machine has a named limit; at the limit a command is refused, with the remedy.

**All or nothing.** A machine that can take part in transactions has ``prepare``. It gets all commands of one
transaction that are for this machine, in order, and returns why they cannot be done, or what they will do
(``Effects``), without changing anything. ``commit`` does it, and cannot fail. The host prepares in every machine first,
then commits in every one.

**Space.** A machine that reads its commands again (``retains``) names them by row and place, which are the same at
every keeper. It calls ``ground.release`` for commands that it needs no more; when nothing of an extent of rows is
needed, the rows become hollow. If little of an extent is needed, the host has that written again at the end of the log:
``forward`` makes the commands for it. Bodies are read by their handles (``bodies.py``).

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
"""The most things that one tick does; the rest falls due again at once."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a transaction cannot be done; its caller gets the sentence."""

    reason: str


class Effects(msgspec.Struct):
    """What the commands of a transaction will do in one machine, and what each of them answers. Machines derive from
    it."""

    results: list[Any]


class Ground:
    """What the host gives a machine: its parts, the time, the release of commands."""

    __slots__ = ("extent", "index", "now_us", "number", "release", "streams", "version")

    def __init__(
        self,
        number: int,
        release: Callable[[int, int], None],
        extent: Callable[[], int],
        streams: OrderedSessions,
        version: int = 1,
    ) -> None:
        self.version = version
        """The version in use, which may be an earlier one than the code's: commands mean what they meant in it."""
        self.extent = extent
        """The number of the extent in which the row lies that is being applied; the same for all rows of an extent."""
        self.number = number
        self.index = 0
        """The index of the command that is being applied, for machines whose commands are ``identified``."""
        self.now_us = 0
        """The replicated time of the command that is being applied, in microseconds since 1970. It never falls."""
        self.release = release
        """``release(row, size)``: so many bytes of the row's commands are needed no more."""
        self.streams = streams
        """Which commands of ordered publishers were done: one table for all machines."""


class Machine:
    """The base of all machines. ``kind`` and ``version`` name the code: a machine is made only when every voter has
    that code. Code of a later version knows the earlier ones: ``ground.version`` is the one in use."""

    kind: ClassVar[str] = ""
    version: ClassVar[int] = 1
    identified: ClassVar[bool] = False
    """Commands come with the identity of a call (``sessions.Command``), and the host does each once."""
    retains: ClassVar[bool] = False
    """The machine reads its commands again: their rows stay until they are released."""
    transactional: ClassVar[bool] = False
    """The machine has ``prepare`` and ``commit``."""
    bodied: ClassVar[bool] = False
    """Bodies of commands are asked for by handle: the host keeps the latest in memory."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.parts = Parts(self.encode_part)

    def apply(self, row: int, place: int, command: bytes) -> Any:
        """Do one command and return its result. It must not raise; ``MemoryError`` and the like stop the keeper."""
        raise NotImplementedError

    def prepare(self, row: int, places: Sequence[int], commands: Sequence[bytes]) -> Refusal | Effects:
        """What these commands of one transaction would do together; each has its place in the row. It must change
        nothing."""
        return Refusal(f"the style {self.kind!r} cannot take part in a transaction")

    def commit(self, effects: Effects) -> None:
        """Do what ``prepare`` said. It cannot fail."""
        raise NotImplementedError

    @staticmethod
    def pieces(command: bytes) -> Sequence[bytes]:
        """The bodies in a command; a handle (row, place, piece) counts them from 0. A pure function: it is called in
        another thread, too, and must not raise for a command that ``apply`` accepted."""
        return (command,)

    # Questions.

    def query(self, question: bytes) -> bytes:
        """Answer a question, without changing anything."""
        raise BadInput(f"the style {self.kind!r} answers no questions: use its commands")

    def gauges(self) -> dict[str, int]:
        """Sizes and counts, for the people who look after it."""
        return {}

    # Handing things out.

    demands: Demands | None = None
    """The table of consumers, in machines that hand things out."""

    def told(self, thing: int) -> tuple[Sequence[Handle], bytes]:
        """What a consumer is told of a thing that it was given: handles of the bodies, and a note of the machine."""
        raise NotImplementedError

    def told_many(self, things: Sequence[int]) -> Sequence[tuple[Sequence[Handle], bytes]]:
        """The same for several things, which are told together: one may refer to the body of an earlier one."""
        return [self.told(thing) for thing in things]

    # Time.

    def due_us(self) -> int | None:
        """When something falls due next, in replicated time; None if nothing will. It is called often."""
        return None

    def tick(self) -> None:
        """Do what is due at ``ground.now_us``, at most ``TICK_THINGS_MAX`` things of it."""

    # Leases.

    def lease_us(self, owner: int) -> int | None:
        """How long an owner may be silent; None if it holds nothing here."""
        return None

    def owners(self) -> Iterable[int]:
        """All owners that hold a lease here."""
        return ()

    def expire(self, owners: Sequence[int]) -> None:
        """These owners were silent for too long, or left for good: what they held is free."""

    # What is done outside of commands.

    @property
    def busy(self) -> bool:
        """Whether ``chores`` has something to do."""
        return False

    def chores(self) -> list[bytes]:
        """A slice of a long search, of a few milliseconds, which the leader calls after commands. It returns commands
        of this machine, which the leader submits and ``apply`` checks; it must change nothing."""
        return []

    def search_again(self) -> None:
        """Commands that ``chores`` returned were not done: it must return them again."""

    # Space.

    def forward(self, rows: Mapping[int, Sequence[bytes]], loose: Mapping[tuple[int, int], bytes]) -> list[bytes]:
        """Commands of this machine that write again what it still needs of some rows, and release it in those rows.
        ``rows`` are the machine's own; ``loose`` are commands of transactions, by row and place."""
        return []

    # Snapshots.

    def part_names(self) -> list[str]:
        """The names of all parts, in an order that depends on the state alone."""
        raise NotImplementedError

    def encode_part(self, name: str) -> bytes:
        raise NotImplementedError

    def parts_now(self) -> list[tuple[str, bytes]]:
        """All parts as they are now, whatever a snapshot that is being taken still needs."""
        return [(name, self.encode_part(name)) for name in self.part_names()]

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        """Become what the parts say; no parts are the state before the first command."""
        raise NotImplementedError

    def validate(self) -> None:
        """Assert the invariants; for tests."""
