"""Writing forward: what is live in an extent of rows is written again at the end of the log; then the extent is
dead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...core.errors import Damaged
from .host import HOST, Host, inner_place
from .words import Together, word_of

FORWARD_BYTES_MAX = 8 << 20
"""Bytes that are read to write one extent forward; the rest is left for the next time."""


def forwarding(
    host: Host, rows: Iterable[int], read_row: Callable[[int], tuple[int, Sequence[bytes]]]
) -> list[tuple[int, list[bytes]]]:
    """By number of the machine, the commands that write forward what it needs of these rows; none if a row cannot be
    read here now."""
    own: dict[int, dict[int, Sequence[bytes]]] = {}
    loose: dict[int, dict[tuple[int, int], bytes]] = {}
    size = 0
    try:
        for row in rows:
            if size >= FORWARD_BYTES_MAX:
                break
            machine, held = read_row(row)
            size += sum(map(len, held))
            if machine == HOST:
                unpack(row, held, loose)
            else:
                own.setdefault(machine, {})[row] = held
    except Damaged:
        return []
    found: list[tuple[int, list[bytes]]] = []
    for number in sorted({*own, *loose}):
        hosted = host.machines.get(number)
        wanted = [] if hosted is None else hosted.machine.forward(own.get(number, {}), loose.get(number, {}))
        if wanted:
            found.append((number, wanted))
    return found


def unpack(row: int, held: Sequence[bytes], loose: dict[int, dict[tuple[int, int], bytes]]) -> None:
    """The commands of the transactions of a row, by machine."""
    for place, command in enumerate(held):
        word = word_of(command)
        if isinstance(word, Together):
            number = 0
            for machine, commands in word.parts:
                for one in commands:
                    loose.setdefault(machine, {})[(row, inner_place(place, number))] = one
                    number += 1
