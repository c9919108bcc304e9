"""Rights for the words of clients on software buses; members run guests that send these words.

The door checks each word of a guest before it sends the word on (``GuestWords``). With an access list a client may do
what rules allow: ``slots:BUS/SLOT enrol``, ``slots:BUS see``, ``slots:BUS reconfigure``, and ``slots:BUS host`` for
words that only a router sends. A role of the file that is ``listed`` is the client's if a rule allows
``slot-role:BUS/ROLE hold``: a client *claims* roles, and the door removes those that it does not have. Every other word
carries a ticket, and the ticket must be one that this guest was given: every member sees the numbers of all tickets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..wire.asking import ANYWHERE, Need, Words
from .plan import Name
from .words import WORDS as SAID
from .words import (
    AddRoute,
    Advertise,
    Cancel,
    DelRoute,
    Enquire,
    Enroll,
    ReqMap,
    SendData,
    Ticket,
    Word,
)

STYLE, ROLE = "slots", "slot-role"
JOIN, ENROL, SEE, RECONFIGURE, HOST, HOLD = "join", "enrol", "see", "reconfigure", "host", "hold"
_SAID = frozenset(SAID)


class Deputise(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A client to its member: count and route for my guest on this bus, which has no router."""

    bus: Name


WORDS = Words(STYLE, {Deputise: None}, rights={Deputise: lambda asked: [(STYLE, asked.bus, JOIN)]})


class GuestWords:
    """The rights of one guest in one group: ``slots/BUS``, or ``slots``, in which all buses are advertised."""

    def __init__(self, group: str) -> None:
        self.bus = group.partition("/")[2]
        self._tickets: set[int] = set()

    def heard(self, word: Word) -> None:
        if isinstance(word, Ticket):
            self._tickets.add(word.number)

    def needs(self, word: Word) -> Iterable[Need]:
        """The right that the client needs for this word."""
        if type(word) not in _SAID or isinstance(word, Enquire):
            return ()
        if isinstance(word, Enroll):
            return ((STYLE, f"{self.bus}/{word.slot}", ENROL),)
        if isinstance(word, AddRoute | DelRoute):
            return (*self._with_ticket(word.ticket), (STYLE, self.bus, RECONFIGURE))
        if isinstance(word, ReqMap):
            return ((STYLE, word.bus, RECONFIGURE if word.hand_over else SEE),)
        if isinstance(word, Advertise | Cancel):
            return ((STYLE, word.bus, HOST),)
        if not isinstance(word, Ticket) and hasattr(word, "ticket"):
            return self._with_ticket(word.ticket)
        return (self._hosting(),)

    def _with_ticket(self, ticket: int) -> Iterable[Need]:
        return () if ticket in self._tickets else (self._hosting(),)

    def _hosting(self) -> Need:
        return (STYLE, self.bus or ANYWHERE, HOST)

    def claims(self, word: Word) -> dict[str, Need]:
        """Roles that are claimed, with the right to each."""
        if not isinstance(word, Enroll | ReqMap):
            return {}
        bus = word.bus if isinstance(word, ReqMap) else self.bus
        return {role: (ROLE, f"{bus}/{role}", HOLD) for role in word.claims or ()}

    def with_claims(self, word: Word, roles: Iterable[str]) -> Word:
        """The word with these claims; never with None, which only words of members have."""
        return msgspec.structs.replace(word, claims=tuple(roles)) if isinstance(word, Enroll | ReqMap) else word


def about(word: Any) -> int:
    """The number by which the sender of a word recognises its refusal."""
    if isinstance(word, SendData):
        return word.id[1]
    return int(getattr(word, "nonce", 0) or getattr(word, "ticket", 0))
