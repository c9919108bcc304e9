"""A partial view: some members of a crowd, picked at random and renewed all the time, so that the crowd stays
connected.

Theory of operation
-------------------
In a crowd no member knows all others. Each knows ``size`` others, its neighbours, and again and again exchanges a few
of them with one of them, a *swap* (Voulgaris, Gavidia and van Steen, *Cyclon*, 2005). A neighbour has an age, counted
in swaps since it was last heard of. A swap is made with the oldest neighbour: it is taken out of the view, and comes
back only if it answers. So a member that is gone is forgotten after as many swaps as there are neighbours, and nobody
need be told; pointers to it that others still hand on are refused for a while. Each swap gives the other side a fresh
pointer to the member that asked, so a living member is known to about as many members as it knows.

The result is close to a random graph in which every member has ``size`` pointers to others. Such a graph is connected
with a probability that grows fast with ``size``, even when three of ten members die at once: a member is cut off only
if all its neighbours and all members that know it died.

Pure: no time, no frames. ``crowd`` sends the swaps.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...core.ports import Address, Random

BURIED_SWAPS = 30
BURIED_MAX = 1_024

Pointer = tuple[int, Address, int]
"""A member, where it is reached, and the pointer's age in swaps."""


class PartialView:
    """The neighbours of one member."""

    def __init__(self, me: int, size: int, random: Random) -> None:
        self._me = me
        self._size = size
        self._random = random
        self._known: dict[int, tuple[Address, int]] = {}
        self._buried: dict[int, int] = {}
        self._swaps = 0
        self._sent: list[int] = []

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, member: object) -> bool:
        return member in self._known

    @property
    def full(self) -> bool:
        return len(self._known) >= self._size

    @property
    def members(self) -> list[int]:
        return list(self._known)

    @property
    def addresses(self) -> dict[int, Address]:
        return {member: address for member, (address, _) in self._known.items()}

    def some(self, count: int, but: Iterable[int] = ()) -> list[int]:
        """Some neighbours, picked at random."""
        avoided = set(but)
        others = [member for member in self._known if member not in avoided]
        return self._random.sample(others, min(count, len(others)))

    def begin_swap(self, count: int, own: Address) -> tuple[int, Address, list[Pointer]] | None:
        """The partner of the next swap, its address, and the pointers to offer: to this member itself and to some
        neighbours. The partner is out of the view until it answers."""
        self._swaps += 1
        for member in [member for member, until in self._buried.items() if until <= self._swaps]:
            del self._buried[member]
        if not self._known:
            return None
        self._known = {member: (address, age + 1) for member, (address, age) in self._known.items()}
        partner = max(self._known, key=lambda member: self._known[member][1])
        address, _ = self._known.pop(partner)
        offered = self.some(count - 1)
        self._sent = offered
        return partner, address, [(self._me, own, 0), *self._pointers(offered)]

    def bury(self, member: int) -> bool:
        """A member left, or did not answer: pointers to it, which others still have, are refused for a while. True if
        it was a neighbour."""
        if len(self._buried) >= BURIED_MAX:
            del self._buried[next(iter(self._buried))]
        self._buried[member] = self._swaps + BURIED_SWAPS
        return self._known.pop(member, None) is not None

    def heard(self, member: int) -> None:
        """The member lives after all."""
        self._buried.pop(member, None)

    def answer_swap(self, count: int, offered: list[Pointer]) -> list[Pointer]:
        """The pointers to give in return. Those that were offered take their places."""
        given = self.some(count, but=[member for member, _, _ in offered])
        answer = self._pointers(given)
        self._merge(offered, given)
        return answer

    def end_swap(self, partner: int, address: Address, given: list[Pointer]) -> None:
        """The partner answered, so it lives."""
        sent, self._sent = self._sent, []
        self._merge(given, sent)
        if not self.full:
            self.add(partner, address)

    def add(self, member: int, address: Address, age: int = 0) -> None:
        """Add a member; if the view is full, in the place of a random one."""
        if member == self._me or member in self._buried:
            return
        if member not in self._known and self.full:
            del self._known[self._random.choice(sorted(self._known))]
        self._known[member] = (address, age)

    def replace_one(self, member: int, address: Address) -> Pointer | None:
        """Put a newcomer into the place of a neighbour, and return that neighbour, which the newcomer gets. So nobody
        is known to fewer members than before."""
        if member == self._me or member in self._known or member in self._buried:
            return None
        if not self.full:
            self._known[member] = (address, 0)
            return None
        gone = self._random.choice(sorted(self._known))
        pointer = self._pointers([gone])[0]
        del self._known[gone]
        self._known[member] = (address, 0)
        return pointer

    def _pointers(self, members: list[int]) -> list[Pointer]:
        return [(member, *self._known[member]) for member in members]

    def _merge(self, pointers: list[Pointer], given_away: list[int]) -> None:
        """New pointers fill empty places first, then the places of pointers that were given away. Known members
        stay."""
        spare = [member for member in given_away if member in self._known]
        for member, address, age in pointers:
            if member == self._me or member in self._buried:
                continue
            if member in self._known:
                known_address, known_age = self._known[member]
                self._known[member] = (address if age < known_age else known_address, min(age, known_age))
                continue
            if self.full:
                if not spare:
                    break
                del self._known[spare.pop()]
            self._known[member] = (address, age)

    def validate(self) -> None:
        assert self._me not in self._known and len(self._buried) <= BURIED_MAX
        assert not self._buried.keys() & self._known.keys()
        assert len(self._known) <= self._size
