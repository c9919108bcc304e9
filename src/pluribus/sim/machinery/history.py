"""What the members of a world did and saw, in the order in which it happened: what checkers read.

The history is written at the border of the application, so that it says what a user would have seen. It is also what a
trace of a real run is turned into before it is checked.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...core.ids import MessageId


class Happening(msgspec.Struct, frozen=True, array_like=True):
    """One action or observation of one member."""

    at: float
    member: int
    what: str
    """``send``, ``deliver``, ``read`` (by an application), ``leave`` (an application closes a group), ``view`` (of a
    group), ``bus`` (a view of the bus), ``uncertain`` (a send that was reported), ``excluded`` (said to a member that
    missed a primary), ``settled``."""
    group: str = ""
    id: MessageId = (0, 0)
    """Of a message: sender and number. Of a view: number and leader."""
    body: bytes = b""
    members: tuple[int, ...] = ()
    chain: tuple[int, int] = (0, 0)
    """Of a primary view: its lineage and epoch."""
    parent: MessageId | None = None
    """Of a message: the one that it answers."""
    orphan: bool = False
    """Of a delivery: it was marked as an answer to a message that does not come."""
    promises: str = ""
    """Of a view of a group: what its members were promised."""
    late: bool = False
    """Of a delivery: it is of the last primary that the member was in, and came on the way to the next."""


class History:
    """Append-only."""

    def __init__(self) -> None:
        self.happenings: list[Happening] = []

    def add(self, happening: Happening) -> None:
        self.happenings.append(happening)

    def of(self, what: str) -> Iterator[Happening]:
        return (happening for happening in self.happenings if happening.what == what)

    def sends_first(self) -> None:
        """Put every send before its sender's own delivery. A large message comes back while its last piece is sent, and
        a call that returns late is written down late; it was sent before it was delivered all the same."""
        sends = {(h.group, h.id): h for h in self.of("send")}
        placed: set[tuple[str, MessageId]] = set()
        ordered: list[Happening] = []
        for h in self.happenings:
            key = (h.group, h.id)
            if h.what == "send" or (h.what == "deliver" and h.member == h.id[0] and key in sends):
                if key not in placed:
                    placed.add(key)
                    ordered.append(sends[key])
                if h.what == "send":
                    continue
            ordered.append(h)
        self.happenings = ordered

    def __len__(self) -> int:
        return len(self.happenings)
