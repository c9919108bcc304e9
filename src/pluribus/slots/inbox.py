"""The memory of a receiver, so that each message is given to the application once, or again if it was withheld.

Of each origin it knows the *floor*, below which every message is settled. A message above the floor may be *held* (it
waits here or at the application) or *done* (acknowledged, with the answer if it was a question). A done message that
comes again is a duplicate: it is acknowledged once more, because the first acknowledgement may be lost. A held message
that comes again is ignored. A withheld message is forgotten, so it comes again as if for the first time.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from ..core.limits import SLOT_SENDERS_REMEMBERED_MAX
from ..wire.questions import Wrapped
from .words import Id

Answer = tuple[Wrapped | None, str]
"""The answer to a question, and the exception of the answering program; ``(None, "")`` for plain messages."""
PLAIN: Answer = (None, "")


class Remembered(msgspec.Struct, array_like=True, frozen=True):
    """The memory of one origin, on its way with a moving occupant."""

    origin: int
    floor: int
    done: list[tuple[int, str, Answer]]


class _Origin:
    __slots__ = ("done", "floor", "held")

    def __init__(self) -> None:
        self.floor = 0
        self.held: set[tuple[int, str]] = set()
        self.done: dict[tuple[int, str], Answer] = {}


class InboxMemory:
    """The memory of one occupant. A message is identified by its identity and the port on which it came."""

    def __init__(self) -> None:
        self._origins: OrderedDict[int, _Origin] = OrderedDict()

    def heard(self, origin: int, floor: int) -> None:
        """Every message of this origin below ``floor`` is settled: none of them is remembered, and none accepted."""
        found = self._origins.get(origin)
        if found is None:
            found = self._origins[origin] = _Origin()
            if len(self._origins) > SLOT_SENDERS_REMEMBERED_MAX:
                self._origins.popitem(last=False)
        else:
            self._origins.move_to_end(origin)
        if floor > found.floor:
            found.floor = floor
            found.done = {key: answer for key, answer in found.done.items() if key[0] >= floor}

    def is_old(self, id: Id) -> bool:
        return id[1] < self._of(id).floor

    def is_held(self, id: Id, port: str) -> bool:
        return (id[1], port) in self._of(id).held

    def done(self, id: Id, port: str) -> Answer | None:
        return self._of(id).done.get((id[1], port))

    def hold(self, id: Id, port: str) -> None:
        self._of(id).held.add((id[1], port))

    def withhold(self, id: Id, port: str) -> None:
        self._of(id).held.discard((id[1], port))

    def acknowledge(self, id: Id, port: str, answer: Answer = PLAIN) -> None:
        found = self._of(id)
        found.held.discard((id[1], port))
        if id[1] >= found.floor:
            found.done[id[1], port] = answer

    def _of(self, id: Id) -> _Origin:
        found = self._origins.get(id[0])
        if found is None:
            found = self._origins[id[0]] = _Origin()
        return found

    def carried(self) -> list[Remembered]:
        return [
            Remembered(origin, found.floor, [(number, port, answer) for (number, port), answer in found.done.items()])
            for origin, found in self._origins.items()
        ]

    def bring(self, carried: list[Remembered]) -> None:
        for one in carried:
            found = self._origins.setdefault(one.origin, _Origin())
            found.floor = max(found.floor, one.floor)
            found.done.update({(number, port): answer for number, port, answer in one.done})

    def validate(self) -> None:
        for found in self._origins.values():
            assert not found.held & set(found.done), "a message is held and done"
            assert all(number >= found.floor for number, _ in found.done)
        assert len(self._origins) <= SLOT_SENDERS_REMEMBERED_MAX + 1
