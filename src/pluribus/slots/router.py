"""The router: one process that knows the map, is found by multicast, and may stop on one member and start on another.

Theory ------ *Promises.* Before it answers an enrolment, a drop-out or a change of routes, the change is on disk. So a
router which starts with that disk, or is given the map, goes on where this one was: tickets stay valid, routes are the
same. A send is counted by the present map. A ticket whose occupant was silent for ``MISSES_MAX`` pings is not valid any
more. A drop-out is put off for at most ``PUT_OFF_S`` and then done; DROPPED comes after every occupant has acknowledged
that the dependent routes are gone, or has itself been dropped.

*Assumes.* A best-effort group. Two routers of one bus may run for a while (a partition, an operator's mistake): the one
of the later *epoch* wins, of one epoch the one with the greater member number. Occupants ignore the other, and it stops
when it receives a word of the winner. An epoch is later than any that the disk has seen, and not before the clock; if
occupants know a later router all the same, and that router is silent, this one takes a later epoch still.

*States.* ::

    STARTING --map written--> SERVING --a later router is heard--> FENCED
                                 |--stop--> STOPPED

*Liveness.* Requests are repeated by those that made them. Information is repeated every ``INFORM_S`` until each
occupant has acknowledged it, or is expelled.

Source: the report, sections 2.1, 2.3 and 2.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.ids import ALL
from ..core.ports import Random
from .keys import salt_of
from .map import BusMap, Change, Connect, Denied, Disconnect, Enrol, Expel, Granted, Leave
from .plan import REQUIRED, Plan
from .words import (
    DENIED,
    PUT_OFF,
    STALE,
    AckInfo,
    AckRoute,
    AddRoute,
    Advertise,
    Alive,
    AnsMap,
    AnsRoute,
    Cancel,
    Challenge,
    CountTtl,
    DelRoute,
    Dropout,
    Dropped,
    Enquire,
    Enroll,
    KeepAlive,
    NegAck,
    ReqMap,
    ReqRoute,
    RouteDeleted,
    SendData,
    SlotChanged,
    Ticket,
    Version,
    Word,
)

STARTING, SERVING, FENCED, STOPPED = "starting", "serving", "fenced", "stopped"
PING_S = 1.0
MISSES_MAX = 4
INFORM_S = 0.2
PUT_OFF_S = 2.0
ADVERTISE_S = 1.0
CHALLENGES_MAX = 1_024
SAVE_S = 0.5
"""Seconds after which a map that could not be written is written again."""

Save = Callable[[bytes, Callable[[Exception | None], None]], None]
"""Writes a snapshot and calls back when it is on disk."""


def at_once(snapshot: bytes, done: Callable[[Exception | None], None]) -> None:
    """Calls back at once; for a router without a disk."""
    done(None)


def challenge_word(plan: Plan, nonce: int, challenge: bytes) -> Challenge:
    """A challenge, with the salts needed to prove a passphrase, and roles that the access list may give."""
    salts = tuple((role.name, *salt_of(role.verifier)) for role in plan.roles if role.verifier)
    return Challenge(nonce, challenge, salts, tuple(role.name for role in plan.roles if role.listed))


def unseen(map: BusMap, nonce: int) -> NegAck:
    may = ", ".join(map.plan.see)
    return NegAck(nonce, DENIED, f"bus {map.plan.name!r} is shown to {may}: {map.way_to(map.plan.see)}")


def count_of(map: BusMap, word: SendData) -> CountTtl:
    """The occupants that must acknowledge a message, by the present map."""
    legs = map.legs(word.source, word.destinations)
    count = sum(leg.count for leg in legs)
    ttl_s = max((leg.ttl_s for leg in legs), default=0.0)
    return CountTtl(word.id, count, ttl_s, legs, map.version, map.generation(word.source.slot))


def route_of(map: BusMap, word: ReqRoute) -> AnsRoute:
    """The targets of a port's messages, by the present map."""
    source = word.source
    legs = map.legs(source)
    accept = any(leg.target.slot == word.slot for leg in legs)
    generation, live = map.generation(source.slot), map.live(source.slot)
    return AnsRoute(word.ticket, source, accept, legs, generation, live, map.version)


class _Information:
    """Information that is sent to all occupants until each has acknowledged it."""

    __slots__ = ("missing", "next_at", "word")

    def __init__(self, word: Change, missing: set[int], now: float) -> None:
        self.word = word
        self.missing = missing
        self.next_at = now


class Router:
    """Words come in through ``take``, time through ``tick``; words go out through ``out`` and ``adverts``."""

    def __init__(
        self,
        map: BusMap,
        member: int,
        now: float,
        random: Random,
        *,
        epoch: int = 1,
        save: Save = at_once,
        name: str = "",
        answers_all: bool = False,
        on_event: Callable[[str, Any], None] = lambda what, about: None,
    ) -> None:
        self.map = map
        self.member = member
        self.name = name
        self.by = "router"
        self.state = STARTING
        self.answers_all = answers_all
        """True: answers about routes are sent to all members, which may then cache them."""
        self.out: list[tuple[int, Word]] = []
        self.adverts: list[tuple[int, Word]] = []
        """Words for the group of all buses, which managers receive."""
        self.on_event = on_event
        self._random = random
        self._save = save
        self._saving = False
        self._unsaved: list[Callable[[], None]] = []
        self._save_at: float | None = None
        self._missed: dict[int, int] = dict.fromkeys(map.seats, 0)
        self._heard: set[int] = set()
        self._ping_at = now
        self._advertise_at = now
        self._information: list[_Information] = []
        self._later = 0
        """The epoch of a later router that occupants know, and for how many pings they have known it."""
        self._pings_below = 0
        self._handed = 0
        """The nonce of the member that was handed the map."""
        self._put_off: dict[int, float] = {}
        self._leaving: dict[int, tuple[int, set[Version] | None]] = {}
        """Tickets that were given up: the member to tell when all have acknowledged these deletions. None while the map
        is not on disk."""
        self._challenges: dict[int, tuple[int, bytes]] = {}
        map.begin(max(map.epoch + 1, epoch))
        self._commit(self._serve, now)

    def _serve(self) -> None:
        self.state = SERVING
        self.on_event("state", self.state)

    @property
    def plan(self) -> Plan:
        return self.map.plan

    # Called by the world

    @property
    def due_at(self) -> float:
        times = [self._ping_at, self._advertise_at, *(info.next_at for info in self._information)]
        return min(times if self._save_at is None else [*times, self._save_at])

    def tick(self, now: float) -> None:
        if self._save_at is not None and now >= self._save_at and not self._saving:
            self._save_at = None
            self._write(now)
        if self.state != SERVING:
            self._ping_at = self._advertise_at = now + PING_S
            return
        if now >= self._ping_at:
            self._ping(now)
        if now >= self._advertise_at:
            self._advertise_at = now + ADVERTISE_S
            self.advertise(ALL)
        for info in self._information:
            if info.next_at <= now:
                info.next_at = now + INFORM_S
                self._say(ALL, info.word)

    def take(self, sender: int, word: Word, now: float) -> None:
        action = TRANSITIONS.get((self.state, type(word)))
        if action is not None:
            action(self, sender, word, now)

    def stop(self, *, cancel: bool) -> bytes:
        """Stop; returns the state that the next router needs. ``cancel``: there will be none."""
        self.state = STOPPED
        if cancel:
            self.adverts.append((ALL, Cancel(self.plan.name, self.map.epoch)))
        return self.map.snapshot()

    def advertise(self, to: int) -> None:
        here = self.map
        occupants = len(here.seats)
        advert = Advertise(
            here.plan.name, here.epoch, self.by, bool(here.waiting()), len(here.plan.slots), occupants, self.name
        )
        self.adverts.append((to, advert))

    def _ping(self, now: float) -> None:
        """Ping. Occupants that were silent since the last ping have missed one more."""
        self._ping_at = now + PING_S
        self._overtake(now)
        silent = []
        for number in self.map.seats:
            missed = 0 if number in self._heard else self._missed.get(number, 0) + 1
            self._missed[number] = missed
            if missed > MISSES_MAX:
                silent.append(number)
        self._heard.clear()
        for number in silent:
            self._gone(number, Expel(number), now)
        self._say(ALL, KeepAlive(self.map.epoch))

    def _overtake(self, now: float) -> None:
        """Occupants know a later router that is silent: it is gone, and so is its map. After a few pings this router
        takes a still later epoch, or occupants would ignore it for ever."""
        if self._later <= self.map.epoch:
            self._pings_below = 0
            return
        self._pings_below += 1
        if self._pings_below > MISSES_MAX:
            self.map.begin(self._later + 1)
            self._pings_below = 0
            self._commit(lambda: None, now)

    # The map

    @property
    def _dirty(self) -> bool:
        """True if the present map is not on disk."""
        return self._saving or self._save_at is not None

    def _commit(self, then: Callable[[], None], now: float) -> None:
        """Call ``then`` when the present map is on disk."""
        self._unsaved.append(then)
        if not self._saving and self._save_at is None:
            self._write(now)

    def _write(self, now: float) -> None:
        ready, self._unsaved = self._unsaved, []
        self._saving = True

        def done(error: Exception | None) -> None:
            self._saving = False
            if error is not None:
                self._unsaved = ready + self._unsaved
                self._save_at = now + SAVE_S
                self.on_event("unsaved", error)
                return
            if self.state in (STARTING, SERVING):
                for then in ready:
                    then()
                if self._unsaved:
                    self._write(now)

        self._save(self.map.snapshot(), done)

    def _gone(self, number: int, command: Leave | Expel, now: float) -> None:
        self.map.apply(command)
        self._missed.pop(number, None)
        self._put_off.pop(number, None)
        changes = self.map.take_changes()

        def gone() -> None:
            if number in self._leaving:
                announced = self.plan.announces
                deleted = {change.version for change in changes if isinstance(change, RouteDeleted) and announced}
                self._leaving[number] = (self._leaving[number][0], deleted)
            self._inform(changes, now)

        self._commit(gone, now)

    def _inform(self, changes: list[Change], now: float) -> None:
        seats = set(self.map.seats)
        for info in self._information:
            info.missing &= seats
        if self.plan.announces:
            self._information += [_Information(change, set(seats), now) for change in changes]
            for info in self._information[-len(changes) :] if changes else ():
                info.next_at = now + INFORM_S
                self._say(ALL, info.word)
        self._settle_information()
        for change in changes:
            self.on_event("changed", change)

    def _settle_information(self) -> None:
        self._information = [info for info in self._information if info.missing]
        untold = {info.word.version for info in self._information if isinstance(info.word, RouteDeleted)}
        for number, (member, deleted) in list(self._leaving.items()):
            if deleted is not None and not deleted & untold:
                del self._leaving[number]
                self._say(member, Dropped(number))

    # Words

    def _enroll(self, sender: int, word: Enroll, now: float) -> None:
        slot = self.plan.slot(word.slot)
        if (word.keyed or (slot is not None and slot.enrol)) and self.plan.roles and not word.proofs:
            self._challenge(sender, word.nonce)
            return
        challenge = word.challenge if self._challenges.get(word.nonce) == (sender, word.challenge) else b""
        outcome = self.map.apply(
            Enrol(word.slot, sender, word.nonce, word.name, challenge, word.proofs if challenge else (), word.claims)
        )
        if isinstance(outcome, Denied):
            self._say(sender, NegAck(word.nonce, DENIED, outcome.reason))
            return
        assert isinstance(outcome, Granted)
        seat = outcome.seat
        self._heard.add(seat.number)
        changes = self.map.take_changes()

        def grant() -> None:
            here = self.map
            generation, waiting = here.generation(seat.slot), here.waiting()
            ticket = Ticket(
                word.nonce, seat.number, seat.slot, generation, here.version, here.shape, waiting, self.by, seat.roles
            )
            self._say(sender, ticket)
            self._inform(changes, now)

        if changes or self._dirty:
            self._commit(grant, now)
        else:
            grant()

    def _challenge(self, sender: int, nonce: int) -> None:
        known = self._challenges.get(nonce)
        if known is None or known[0] != sender:
            if len(self._challenges) >= CHALLENGES_MAX:
                self._challenges.pop(next(iter(self._challenges)))
            number = self._random.getrandbits(128).to_bytes(16, "big")
            bound = f"{self.plan.name}/{self.map.epoch}/{sender}/{nonce}/".encode()
            self._challenges[nonce] = (sender, bound + number)
        self._say(sender, challenge_word(self.plan, nonce, self._challenges[nonce][1]))

    def _dropout(self, sender: int, word: Dropout, now: float) -> None:
        number = word.ticket
        if number in self._leaving:
            return
        seat = self.map.seats.get(number)
        if seat is None:
            self._say(sender, Dropped(number))
            return
        if seat.member != sender:
            self._stale(sender, number, word.slot)
            return
        self._heard.add(number)
        slot = self.plan.slot(seat.slot)
        needed = slot is not None and slot.kind == REQUIRED and len(self.map.occupants(seat.slot)) <= slot.least
        if word.end and needed and number not in self._put_off:
            self._put_off[number] = now + PUT_OFF_S
        if word.end and needed and self._put_off[number] > now:
            self._say(sender, NegAck(number, PUT_OFF, f"slot {seat.slot!r} is required: wait for another occupant"))
            return
        self._leaving[number] = (sender, None)
        self._gone(number, Leave(number, word.end), now)

    def _alive(self, sender: int, word: Alive, now: float) -> None:
        if word.epoch > self.map.epoch:
            self._later = max(self._later, word.epoch)
        elif self._holds(sender, word.ticket, word.slot):
            self._heard.add(word.ticket)
        elif word.ticket not in self._leaving:
            self._stale(sender, word.ticket, word.slot)

    def _holds(self, sender: int, ticket: int, slot: str) -> bool:
        """True if the ticket is valid and belongs to the sender: every member sees the numbers of all tickets."""
        seat = self.map.seats.get(ticket)
        return seat is not None and (seat.slot, seat.member) == (slot, sender)

    def _stale(self, sender: int, ticket: int, slot: str) -> None:
        reason = f"ticket {ticket} of slot {slot!r} is not valid any more: this program was silent; enroll again"
        self._say(sender, NegAck(ticket, STALE, reason, self.map.epoch))

    def _data(self, sender: int, word: SendData, now: float) -> None:
        here = self.map
        if not self._holds(sender, word.ticket, word.source.slot):
            self._stale(sender, word.ticket, word.source.slot)
            return
        self._heard.add(word.ticket)
        slot = here.plan.slot(word.source.slot)
        port = slot.port(word.source.port) if slot is not None else None
        if port is None or not port.sends:
            reason = f"{word.source} is no port that sends: look at the plan"
            self._say(sender, NegAck(word.id[1], DENIED, reason))
            return
        self._say(sender, count_of(here, word))

    def _req_route(self, sender: int, word: ReqRoute, now: float) -> None:
        here = self.map
        if not self._holds(sender, word.ticket, word.slot):
            self._stale(sender, word.ticket, word.slot)
            return
        self._heard.add(word.ticket)
        self._say(ALL if self.answers_all else sender, route_of(here, word))

    def _change_route(self, sender: int, word: AddRoute | DelRoute, now: float) -> None:
        if not self._holds(sender, word.ticket, word.slot):
            self._stale(sender, word.ticket, word.slot)
            return
        self._heard.add(word.ticket)
        command: Connect | Disconnect
        if isinstance(word, AddRoute):
            command = Connect(word.ticket, word.connection)
        else:
            command = Disconnect(word.ticket, word.source, word.target)
        outcome = self.map.apply(command)
        if isinstance(outcome, Denied):
            self._say(sender, NegAck(word.nonce, DENIED, outcome.reason))
            return
        changes = self.map.take_changes()

        def done() -> None:
            self._say(sender, AckRoute(word.nonce, self.map.version))
            self._inform(changes, now)

        if changes or self._dirty:
            self._commit(done, now)
        else:
            done()

    def _acknowledged(self, sender: int, word: AckInfo, now: float) -> None:
        seat = self.map.seats.get(word.ticket)
        if seat is not None and seat.member != sender:
            return
        for info in self._information:
            told = info.word
            if isinstance(told, SlotChanged):
                if told.slot == word.slot and told.generation <= word.generation:
                    info.missing.discard(word.ticket)
            elif told.version == word.version:
                info.missing.discard(word.ticket)
        self._heard.add(word.ticket)
        self._settle_information()

    def _other(self, sender: int, word: KeepAlive, now: float) -> None:
        """A word of another router of this bus."""
        if (word.epoch, sender) > (self.map.epoch, self.member):
            self.state = FENCED
            self.on_event("state", self.state)

    def _enquired(self, sender: int, word: Enquire, now: float) -> None:
        self.advertise(sender)

    def _req_map(self, sender: int, word: ReqMap, now: float) -> None:
        if word.bus != self.plan.name:
            return
        if (
            (word.keyed or self.plan.see or (word.hand_over and self.plan.reconfigure))
            and self.plan.roles
            and not word.proofs
        ):
            self._challenge(sender, word.nonce)
            return
        known = self._challenges.get(word.nonce) == (sender, word.challenge)
        roles = self.map.roles_of(word.challenge, word.proofs if known else (), word.claims)
        if not self.map.may_see(roles):
            self._say(sender, unseen(self.map, word.nonce))
            return
        if word.hand_over and self.plan.reconfigure and not set(roles) & set(self.plan.reconfigure):
            may, way = ", ".join(self.plan.reconfigure), self.map.way_to(self.plan.reconfigure)
            self._say(sender, NegAck(word.nonce, DENIED, f"the router of {word.bus!r} is moved by {may}: {way}"))
            return
        if word.hand_over:
            self._handed = word.nonce
            self.state = FENCED
            self.on_event("state", self.state)
        self._show(sender, word)

    def _show(self, sender: int, word: ReqMap) -> None:
        here = self.map
        seats = tuple(here.seats.values())
        state = here.snapshot() if word.hand_over else b""
        waiting = here.waiting()
        self._say(sender, AnsMap(word.nonce, here.shape, seats, here.version, waiting, self.by, state, self.name))

    def _handed_over(self, sender: int, word: ReqMap, now: float) -> None:
        """The new router asks again: the answer with the map was lost."""
        if word.hand_over and word.nonce == self._handed:
            self._show(sender, word)

    def _say(self, to: int, word: Word) -> None:
        self.out.append((to, word))

    def validate(self) -> None:
        """Assert the invariants."""
        self.map.validate()
        assert len(self._challenges) <= CHALLENGES_MAX
        assert not set(self._leaving) & set(self.map.seats), "one that leaves is still there"


Action = Callable[[Router, int, Any, float], None]
TRANSITIONS: dict[tuple[str, type], Action] = {
    (STARTING, KeepAlive): Router._other,
    (SERVING, Enroll): Router._enroll,
    (SERVING, Dropout): Router._dropout,
    (SERVING, Alive): Router._alive,
    (SERVING, SendData): Router._data,
    (SERVING, ReqRoute): Router._req_route,
    (SERVING, AddRoute): Router._change_route,
    (SERVING, DelRoute): Router._change_route,
    (SERVING, AckInfo): Router._acknowledged,
    (SERVING, KeepAlive): Router._other,
    (SERVING, Enquire): Router._enquired,
    (SERVING, ReqMap): Router._req_map,
    (FENCED, ReqMap): Router._handed_over,
}
"""By state: the handler of each word; all other words are not for a router."""
