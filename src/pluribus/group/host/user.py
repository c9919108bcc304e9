"""A user's own state machine on the host: the ``StateMachine`` that volatile replicas take, each command done once.

For the author of a plain machine the state is one piece of bytes; here it is cut into parts. Making the piece takes one
turn of the loop. The state of a ``TableMachine`` lies in parts from the beginning: for states that are too large for
one turn.

*Versions.* ``version`` of a user's class says up to which version it knows what commands mean. ``version`` of the
object is the one in use: keepers with later code go on in it until all voters have that code and it is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, ClassVar

from ...core.errors import BadInput
from ..log import PART_BYTES, STOPS, StateMachine
from ..sessions import SessionEntry
from .machine import Ground, Machine
from .parts import Parts
from .table import NAMES, TableMachine


class _Whole(Parts):
    """Parts of a state that changes as a whole."""

    __slots__ = ("changed", "machine")

    def __init__(self, machine: UserMachine) -> None:
        super().__init__(machine.encode_part)
        self.machine = machine
        self.changed = True

    def freeze(self, names: Iterable[str], known: Collection[str]) -> list[str]:
        due = [name for name in names if self.changed or name not in known]
        if due:
            self.machine.hold_piece()
        self._taken = set(due)
        self.changed = False
        return due

    def encoded(self, name: str) -> bytes:
        return self.machine.encode_part(name)

    def thaw(self, kept: bool) -> None:
        if not kept and self._taken:
            self.changed = True
        self.machine.forget_piece()
        self._taken = set()

    def clear(self) -> None:
        self.thaw(True)
        self.changed = False


class UserMachine(Machine):
    """``code`` makes the user's machine."""

    identified: ClassVar[bool] = True
    code: ClassVar[Callable[[], StateMachine]]

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.machine = type(self).code()
        if hasattr(self.machine, "version"):
            vars(self.machine)["version"] = ground.version
        self._table = self.machine.table if isinstance(self.machine, TableMachine) else None
        self._whole = _Whole(self)
        self.parts = self._whole if self._table is None else self._table.parts
        self._piece = b""
        self._count = 0

    def apply(self, row: int, place: int, command: bytes) -> SessionEntry:
        self._whole.changed = True
        try:
            return SessionEntry(True, self.machine.apply(self.ground.index, command))
        except STOPS:
            raise
        except Exception as error:  # noqa: BLE001 - the same everywhere, so it is a result
            return SessionEntry(False, f"{type(error).__name__}: {error}".encode())

    def query(self, question: bytes) -> bytes:
        query = getattr(self.machine, "query", None)
        if query is None:
            raise BadInput(f"the machine {self.kind!r} has no method query(bytes) -> bytes: add one, or use call")
        return bytes(query(question))

    def part_names(self) -> list[str]:
        if self._table is not None:
            return self._table.part_names()
        if self._whole.changed:
            self._piece = self.machine.snapshot()
            self._count = _parts_in(self._piece)
        return [_name(number) for number in range(self._count)]

    def parts_now(self) -> list[tuple[str, bytes]]:
        if self._table is not None:
            return super().parts_now()
        piece = self.machine.snapshot()
        return [(_name(number), _cut(piece, number)) for number in range(_parts_in(piece))]

    def hold_piece(self) -> None:
        """As the state is now, until it is forgotten."""
        if not self._piece:
            self._piece = self.machine.snapshot()

    def encode_part(self, name: str) -> bytes:
        if self._table is not None:
            return self._table.encode_part(name)
        self.hold_piece()
        return _cut(self._piece, int(name))

    def forget_piece(self) -> None:
        self._piece = b""

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        if self._table is not None:
            self._table.restore(self._named_like(NAMES[0], parts))
            return
        pieces = [data for _, data in self._named_like(_name(0), parts)]
        self._count = len(pieces)
        self.machine.restore(b"".join(pieces))

    def _named_like(self, name: str, parts: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """The parts, unless they are those of the other sort of machine."""
        for part in parts:
            if len(part[0]) != len(name):
                kept, here = ("plain", "TableMachine") if self._table is not None else ("TableMachine", "plain")
                raise BadInput(
                    f"what is kept of {self.kind!r} is the state of a {kept} machine, and its class is a {here} one: "
                    "give the new class a kind of its own, and copy the state into another replica"
                )
            yield part


def _name(number: int) -> str:
    return f"{number:06d}"


def _parts_in(piece: bytes) -> int:
    return -(-len(piece) // PART_BYTES)


def _cut(piece: bytes, number: int) -> bytes:
    return piece[number * PART_BYTES : (number + 1) * PART_BYTES]


def hosted(kind: str, code: Callable[[], StateMachine]) -> type[UserMachine]:
    """The host's machine for a user's one. A new meaning of commands needs a greater ``code.version`` (default 1)."""
    if hasattr(code, "version") and isinstance(code, type) and not code.__dictoffset__:
        raise BadInput(
            f"objects of the machine {kind!r} are told the version in use as an attribute, for which __slots__ leave "
            "no room: leave them out"
        )
    members: dict[str, Any] = {"kind": kind, "version": int(getattr(code, "version", 1)), "code": staticmethod(code)}
    return type(f"Hosted_{kind}", (UserMachine,), members)
