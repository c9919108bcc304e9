"""Registrations of spaces of the kinds *views* and *partitioned*, as a program holds them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from ....core.errors import BadInput
from ....spaces.values import written_of
from ....spaces.watching import Mark, Watched
from .space import SpaceEvent, ended, microseconds, seconds, unpacked

NUMBER_BITS = 64


class WatchedSpace(Protocol):
    """The space of a registration: this member's part in it, or the member of a client."""

    name: str

    async def fetched(self, registration: Mark, seen: list[Mark], missed: int, probe: bool) -> Watched:
        """Acknowledge events, and wait for the next ones; with ``probe`` do not wait."""

    async def renewed(self, registration: Mark, lease_us: int, ends: bool) -> float | None:
        """The seconds granted. ``LeaseEnded`` if the registration is over."""


class WatchedRegistration:
    """A registration. Iterate it; ``space.resume(number)`` finds it again, also elsewhere."""

    def __init__(
        self, way: WatchedSpace, name: Mark, granted_s: float | None, hand_back: bytes, seen: int = 0, gap: bool = False
    ) -> None:
        self._way = way
        self._name = name
        self.number = name[0] << NUMBER_BITS | name[1]
        self.granted_s = granted_s
        self._hand_back = unpacked(hand_back)
        self._sequence = seen
        self._gap = gap
        self._missed = 0
        self._told: dict[Mark, None] = {}
        """Events that the caller has, and that are not acknowledged."""
        self._untold_missed = 0

    async def __aiter__(self) -> AsyncIterator[SpaceEvent]:
        """Events, those of one writer in their order. Asking for the next event acknowledges the one before.
        ``LeaseEnded`` when the registration is over."""
        while True:
            told, missed = list(self._told), self._missed
            watched = await self._way.fetched(self._name, told, missed, False)
            if watched.ended:
                raise ended(self._way.name, f"registration {self.number}")
            again = {*watched.gaps, *[mark for mark, _ in watched.events]}
            for mark in told:  # after a break some may come again, and are acknowledged again
                if mark not in again:
                    del self._told[mark]
            self._missed = watched.missed
            self._untold_missed += watched.missed
            self._gap = self._gap or not self._told.keys() >= set(watched.gaps)
            self._told.update(dict.fromkeys(watched.gaps))
            for mark, item in watched.events:
                if mark not in self._told:
                    yield self._event(mark, written_of(item))

    def _event(self, mark: Mark, value: Any) -> SpaceEvent:
        missed, gap = self._untold_missed, self._gap
        self._untold_missed, self._gap = 0, False
        self._sequence += missed + 1
        self._told[mark] = None
        return SpaceEvent(self._sequence, value, self._hand_back, missed, gap)

    async def renew(self, lease: float | None) -> float | None:
        """Renew the lease. ``LeaseEnded`` if the registration is over."""
        if lease is None:
            raise BadInput("a registration is renewed for so many seconds: give a number")
        self.granted_s = await self._way.renewed(self._name, microseconds(lease), False)
        return self.granted_s

    async def cancel(self) -> None:
        await self._way.renewed(self._name, 0, True)


async def resumed(way: WatchedSpace, number: int) -> WatchedRegistration:
    """A registration that was made before, by its number."""
    name = name_of(number)
    found = await way.fetched(name, [], 0, True)
    if found.ended:
        raise ended(way.name, f"registration {number}")
    return WatchedRegistration(way, name, seconds(found.left_us), found.hand_back, found.seen, found.gap)


def name_of(number: int) -> Mark:
    """The name of a registration, from its number."""
    name = number >> NUMBER_BITS, number & ((1 << NUMBER_BITS) - 1)
    if number < 0 or max(name) >= 1 << 63:
        raise BadInput(f"{number} is no number of a registration: give the number that notify() returned")
    return name
