"""A partial view: some members of a crowd, picked by chance and changed all the time, so that the whole hangs together.

Theory of operation
-------------------
In a crowd nobody knows everybody. Each member knows ``size`` others, its neighbours, and swaps a few of them with one
of them again and again (Voulgaris, Gavidia and van Steen, *Cyclon*, 2005). A neighbour has an age, in swaps since it
was last heard of. A swap is with the oldest: it is taken out of the view, and comes back only by answering, so who is
gone is forgotten after as many swaps as there are neighbours, without anybody being told; pointers to it that others
still hand around are refused for a while. Each swap brings a fresh pointer to the one who asks, so a member that lives
is known to about as many as it knows.

What comes of it is close to a random graph in which everybody has ``size`` pointers to others. Such a graph hangs
together, and still does when three of ten members die at once, with a probability that grows fast with ``size``: a
member is cut off only if all its neighbours and all who know it died.

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
        """Neighbours by chance."""
        avoided = set(but)
        others = [member for member in self._known if member not in avoided]
        return self._random.sample(others, min(count, len(others)))

    def begin_swap(self, count: int, own: Address) -> tuple[int, Address, list[Pointer]] | None:
        """Whom to ask, where it is, and what to offer it: this member itself, and some neighbours. It is out of the
        view until it answers."""
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
        """It left, or did not answer: pointers to it, which others still have, are not taken for a while. Whether it
        was a neighbour."""
        if len(self._buried) >= BURIED_MAX:
            del self._buried[next(iter(self._buried))]
        self._buried[member] = self._swaps + BURIED_SWAPS
        return self._known.pop(member, None) is not None

    def heard(self, member: int) -> None:
        """It lives, whatever we thought."""
        self._buried.pop(member, None)

    def answer_swap(self, count: int, offered: list[Pointer]) -> list[Pointer]:
        """What to give in return; what was offered takes its place."""
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
        """Know a member; if the view is full, in place of one by chance."""
        if member == self._me or member in self._buried:
            return
        if member not in self._known and self.full:
            del self._known[self._random.choice(sorted(self._known))]
        self._known[member] = (address, age)

    def replace_one(self, member: int, address: Address) -> Pointer | None:
        """Know a newcomer in place of a neighbour, which it gets: so nobody is known to fewer than before."""
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
        """New pointers fill empty places first, then those of what was given away; what is known already stays."""
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
