"""What every multicast protocol of the radio world has: a node, members among the nodes, messages of users."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from random import Random
from typing import Any

from .air import Air, Word

HEADER_BYTES = 12
"""Kind of word, group, source and number."""
ADDRESS_BYTES = 4
NUMBER_BYTES = 4
SEEN_MAX = 8_192
JITTER_S = 0.01
"""A node that repeats a broadcast waits a random part of this: all that heard it would repeat it at once."""


class Data(Word, frozen=True):
    """A message of a user."""

    source: int
    number: int
    length: int
    body: bytes = b""
    """Empty where only the length counts."""

    @property
    def control(self) -> int:
        return HEADER_BYTES

    @property
    def carried(self) -> int:
        return self.length


Deliver = Callable[[int, Data], None]
"""Called with the member and the message, once for each."""


class Seen:
    """Things that were seen, the last ``SEEN_MAX`` of them."""

    def __init__(self) -> None:
        self._known: dict[Hashable, None] = {}

    def first(self, what: Hashable) -> bool:
        """Whether it is seen for the first time; from now on it is not."""
        known = self._known
        if what in known:
            return False
        known[what] = None
        if len(known) > SEEN_MAX:
            del known[next(iter(known))]
        return True


class RadioNode:
    """One node with one protocol. Protocols override ``start``, ``send`` and ``receive``."""

    def __init__(self, me: int, air: Air, members: frozenset[int], deliver: Deliver, random: Random) -> None:
        self.me = me
        self.air = air
        self.members = members
        """Known to a node only as far as itself; the whole set serves to agree on the first source, and tests."""
        self.member = me in members
        self.random = random
        self._deliver = deliver
        self._seen = Seen()
        air.join(me, self)

    def hand_to(self, deliver: Deliver) -> None:
        """Deliver to this user from now on."""
        self._deliver = deliver

    def start(self) -> None:
        """Called once, at time zero."""

    def send(self, data: Data) -> None:
        """This member has a message for all others."""
        raise NotImplementedError

    def receive(self, sender: int, word: Any) -> None:
        """A frame came from a neighbour."""
        raise NotImplementedError

    def first(self, data: Data) -> bool:
        return self._seen.first((data.source, data.number))

    def take(self, data: Data) -> None:
        """Hand a message that was not seen before to the user of this node, if it is a member."""
        if self.member and data.source != self.me:
            self._deliver(self.me, data)
