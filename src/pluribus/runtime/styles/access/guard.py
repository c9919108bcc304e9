"""The guard of one member's doors: it decides about every question of a client, before the question is answered.

It holds a copy of the access list. A question to a keeper is always under way; the keeper answers when the list
changes, or after ``HOLD_S``, so a change arrives at once. The copy is valid for a lease of ``LEASE_S`` from the moment
of the question. When the lease ends, clients are cut off, and their questions wait until the keepers answer. So
``LEASE_S`` after a removal no door uses the list of before.

Decisions are remembered for each connection until the list has another version. A connection is cut if it was allowed
something that the new version does not allow, whatever was under way on it.

Where there is no list everything is allowed, also while no keeper can be asked, unless the door was opened with
``access=required``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ....access import words
from ....access.rules import Decisions
from ....access.words import Listed
from ....core.errors import BadInput, NotPrimary, PluribusError, Refused
from ....core.ids import number_of
from ....group.host.requests import Examine
from ....wire.asking import Need, needs_of
from .audit import Audit

if TYPE_CHECKING:
    from ...bus import Bus

LEASE_S = 3.0
HOLD_S = 0.5
LOOK_S = 1.0
"""Seconds between two looks for a list where there is none."""
ANSWER_S = 1.5
WAIT_S = 10.0
"""Seconds for which a question waits for the keepers to say which list is valid."""
DECISIONS_MAX = 4_096
"""Decisions that are remembered for one connection."""
KEEPERS = number_of("keepers")
LATE = (
    "the access list cannot be asked for: the keepers of this bus do not answer; ask again when most of them are there"
)

log = logging.getLogger("pluribus")


class GuestVocabulary(Protocol):
    """The rights that a style's words need when a guest says them in its group."""

    def needs(self, word: Any) -> Iterable[Need]: ...

    def claims(self, word: Any) -> dict[str, Need]: ...

    def with_claims(self, word: Any, roles: Iterable[str]) -> Any: ...


class Visitor:
    """One client, for the guard. ``user`` is empty before it has logged in."""

    __slots__ = ("address", "certificate", "cut", "decided", "free", "gone", "token", "until_us", "user", "version")

    def __init__(self, address: str = "", certificate: str = "", cut: Callable[[], None] = lambda: None) -> None:
        self.address = address
        self.certificate = certificate
        self.cut = cut
        """Ends the connection, and everything that is under way on it."""
        self.user = ""
        self.token = ""
        """The id of the token that proved the user, if one did."""
        self.until_us = 0
        """When the token ends; 0: never."""
        self.decided: dict[Need, bool] = {}
        self.version = -1
        self.free = False
        """True if the client was let through because there was no list."""
        self.gone = False


class Guard:
    """``admit`` is the one check of all questions of all clients."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.required = False
        self._list: Decisions | None = None
        self._known = asyncio.Event()
        """Set while the valid list is known."""
        self._until = 0.0
        self._wake = asyncio.Event()
        self._catching_up: list[asyncio.Future[None]] = []
        """Futures that wait for a look at the list that begins from now on."""
        self._task: asyncio.Task[None] | None = None
        self.visitors: dict[Visitor, None] = {}
        self.audit = Audit(bus)

    def come(self, visitor: Visitor) -> None:
        self.visitors[visitor] = None
        if self._task is None:
            self._task = asyncio.ensure_future(self._watch())

    def gone(self, visitor: Visitor) -> None:
        visitor.gone = True
        self.visitors.pop(visitor, None)

    # Deciding.

    async def admit(self, request: Any, visitor: Visitor) -> None:
        """Returns if the client may ask it; ``Refused`` says which right it lacks."""
        decisions = await self.current()
        if not decisions.listed:
            visitor.free = True
            return
        self.identify(visitor, decisions)
        needs = needs_of(request)
        for need in needs:
            if not self.allowed(visitor, need, decisions):
                self._refuse(visitor, need, type(request).__name__)

    async def admit_words(self, words: GuestVocabulary, word: Any, visitor: Visitor) -> Any:
        """Returns if a guest of the client may say this word in the group; ``Refused`` says which right it lacks."""
        decisions = await self.current()
        if not decisions.listed:
            return word
        self.identify(visitor, decisions)
        for need in words.needs(word):
            if not self.allowed(visitor, need, decisions):
                self._refuse(visitor, need, type(word).__name__)
        claims = words.claims(word)
        return words.with_claims(
            word, [role for role, need in claims.items() if self.allowed(visitor, need, decisions)]
        )

    def allowed(self, visitor: Visitor, need: Need, decisions: Decisions) -> bool:
        if visitor.version != decisions.version:
            visitor.decided, visitor.version = {}, decisions.version
        found = visitor.decided.get(need)
        if found is None:
            found = decisions.allows(visitor.user, need)
            if len(visitor.decided) >= DECISIONS_MAX:  # allowed words are needed when the list changes
                visitor.decided = {need: True for need, allowed in visitor.decided.items() if allowed}
                if len(visitor.decided) >= DECISIONS_MAX:
                    visitor.cut()
                    raise Refused(f"{DECISIONS_MAX:,} destinations are used on one connection: use several")
            visitor.decided[need] = found
        return found

    def _refuse(self, visitor: Visitor, need: Need, question: str) -> None:
        style, destination, verb = need
        who = f"user {visitor.user!r}" if visitor.user else "who has not logged in"
        right = f"{style}:{destination or '#'} {verb}"
        self.audit.refused(visitor, right, question)
        raise Refused(f"{who} may not do this on the bus {self._bus.url.bus!r}: no rule allows {right}")

    def identify(self, visitor: Visitor, decisions: Decisions) -> None:
        """Check that the client's identity is still valid; if not, cut it off."""
        if not visitor.user and visitor.certificate:
            visitor.user = decisions.certificates.get(visitor.certificate, "")
        if visitor.user and not self._still(visitor, decisions):
            visitor.cut()
            raise Refused("this user or its token was removed from the access list, or has ended: log in again")

    def _still(self, visitor: Visitor, decisions: Decisions) -> bool:
        if visitor.user not in decisions.users:
            return False
        if visitor.token:
            return visitor.token in decisions.tokens and visitor.until_us > self._bus._wall() * 1e6
        return True

    # The valid list.

    async def current(self) -> Decisions:
        """The valid list; ``NotPrimary`` if it cannot be known."""
        if self._list is not None and (self._bus._now() < self._until or not (self._list.listed or self.required)):
            return self._list
        if self._task is None:
            self._task = asyncio.ensure_future(self._watch())
        try:
            async with asyncio.timeout(WAIT_S):
                await self._known.wait()
        except TimeoutError:
            raise NotPrimary(LATE) from None
        if self._list is None:
            raise NotPrimary(LATE)
        return self._list

    async def caught_up(self) -> None:
        """Returns when this member's doors use a list that was just made; clients that come later must prove who they
        are."""
        if self._task is None or (self._list is not None and self._list.listed):
            return
        looked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._catching_up.append(looked)
        self._wake.set()
        await looked

    async def _watch(self) -> None:
        """Follow the list for as long as the bus is open."""
        while not self._bus.closed:
            self._wake.clear()
            catching_up, self._catching_up = self._catching_up, []
            asked_at = self._bus._now()
            pause_s = 0.0
            try:
                pause_s = await self._look(asked_at)
            except PluribusError as error:
                log.debug("the access list was not answered: %s", error)
                if self._list is None and not self.required:
                    self._install(Listed(), asked_at)
                pause_s = 0.1
            except (TimeoutError, OSError):
                pause_s = 0.1
            if self._list is not None and (self._list.listed or self.required) and self._bus._now() >= self._until:
                self._lapse()
            for looked in catching_up:
                if not looked.done():
                    looked.set_result(None)
            if pause_s and not self._wake.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()
            else:
                await asyncio.sleep(0)

    async def _look(self, asked_at: float) -> float:
        """Ask a keeper once; returns the seconds to pause before the next question."""
        bus = self._bus
        keepers = "views" in bus._provided and KEEPERS in bus._dispatch.members
        known = self._list
        if not keepers and (known is None or not known.listed):
            if not self.required:
                self._install(Listed(), asked_at)
            return LOOK_S / 10
        question = words.encode(words.Copy(-1 if known is None or not known.listed else known.version))
        hold_s = HOLD_S if known is not None and known.listed else 0.0
        try:
            async with asyncio.timeout(ANSWER_S + hold_s):
                answer = await bus.keeping.ask(Examine(words.MACHINE, question, wait_s=hold_s))
        except BadInput:  # there is no such machine
            answer = words.encode(Listed())
        if answer:
            self._install(words.listed_of(answer), asked_at)
        else:
            self._confirm(asked_at)
        return 0.0 if self._list is not None and self._list.listed else LOOK_S / 4

    def _confirm(self, asked_at: float) -> None:
        self._until = asked_at + LEASE_S
        self._known.set()

    def _install(self, listed: Listed, asked_at: float) -> None:
        before = self._list
        if before is None or before.version != listed.version or before.listed != bool(listed.users or listed.rules):
            self._list = Decisions(listed)
            self._look_again()
        self._confirm(asked_at)

    def _look_again(self) -> None:
        """Cut off clients that were allowed something that is not allowed any more, or that came before there was a
        list."""
        decisions = self._list
        assert decisions is not None
        if not decisions.listed:
            return
        for visitor in list(self.visitors):
            try:
                lost = visitor.free or (bool(visitor.user) and not self._still(visitor, decisions))
                allowed = [need for need, found in visitor.decided.items() if found]
                if lost or not all(self.allowed(visitor, need, decisions) for need in allowed):
                    visitor.cut()
            except Refused:
                pass

    def _lapse(self) -> None:
        """The lease of the list is over: cut off every client."""
        if self._known.is_set():
            self._known.clear()
            log.warning(LATE)
            for visitor in list(self.visitors):
                visitor.cut()

    async def close(self) -> None:
        await self.audit.close()
        self.abandon()

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for looked in self._catching_up:
            looked.cancel()
        self.audit.abandon()
