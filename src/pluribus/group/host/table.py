"""A state machine whose state is a table, kept in parts.

A plain ``StateMachine`` gives its state as one piece of bytes, in one turn of the loop. That is too long for a large
state. The state of a ``TableMachine`` is a table from keys to plain values, which lies in ``PARTS`` parts by a hash of
the key. So a keeper writes one part at a time, and only parts that changed.

The table keeps values encoded and gives a new copy at each reading. A program cannot change a value behind the table's
back, which would be missing in the next snapshot; a change is always ``machine.table[key] = value``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any, Self
from zlib import crc32

import msgspec

from .parts import Parts

PARTS = 1024
"""A state of 1 GiB has parts of 1 MiB."""
NAMES = tuple(f"{number:04d}" for number in range(PARTS))

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode
_Cells = dict[bytes, bytes]
_cells = msgspec.msgpack.Decoder(_Cells)
_pieces = msgspec.msgpack.Decoder(list[tuple[str, bytes]])

Key = str | int | bytes


class PartedTable(MutableMapping[Key, Any]):
    """A mapping of plain data: what MessagePack can say. Its order is the same at every keeper."""

    __slots__ = ("_cells", "_size", "parts")

    def __init__(self) -> None:
        self.parts = Parts(self.encode_part)
        self._cells: list[_Cells] = [{} for _ in range(PARTS)]
        self._size = 0

    def __getitem__(self, key: Key) -> Any:
        packed = _encode(key)
        try:
            return _decode(self._cells[crc32(packed) % PARTS][packed])
        except KeyError:
            raise KeyError(key) from None

    def __setitem__(self, key: Key, value: Any) -> None:
        packed, kept = _encode(key), _encode(value)  # what cannot be encoded changes nothing
        number = crc32(packed) % PARTS
        self.parts.touch(NAMES[number])
        cells = self._cells[number]
        self._size += packed not in cells
        cells[packed] = kept

    def __delitem__(self, key: Key) -> None:
        packed = _encode(key)
        number = crc32(packed) % PARTS
        if packed not in self._cells[number]:
            raise KeyError(key)
        self.parts.touch(NAMES[number])
        del self._cells[number][packed]
        self._size -= 1

    def __iter__(self) -> Iterator[Key]:
        for cells in self._cells:
            for packed in cells:
                yield _decode(packed)

    def __len__(self) -> int:
        return self._size

    def part_names(self) -> list[str]:
        return [name for name, cells in zip(NAMES, self._cells, strict=True) if cells]

    def encode_part(self, name: str) -> bytes:
        return _encode(self._cells[int(name)])

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self._cells = [{} for _ in range(PARTS)]
        for name, data in parts:
            self._cells[int(name)] = _cells.decode(data)
        self._size = sum(map(len, self._cells))


class TableMachine:
    """A ``StateMachine`` with a table for its state: write ``apply``, and ``query`` if there are questions. Nothing of
    the size of the table is built at once, however large it is, where keepers have it. (In the memory of members it
    travels to a new member as one piece.)"""

    table: PartedTable

    def __new__(cls, *given: Any, **named: Any) -> Self:
        machine = super().__new__(cls)
        machine.table = PartedTable()  # also where a class of somebody's has an __init__ of its own
        return machine

    def apply(self, index: int, command: bytes) -> bytes:
        """Change the table; the caller that submitted the command gets the result."""
        raise NotImplementedError

    def snapshot(self) -> bytes:
        return _encode([(name, self.table.encode_part(name)) for name in self.table.part_names()])

    def restore(self, state: bytes) -> None:
        self.table.restore(_pieces.decode(state) if state else ())
