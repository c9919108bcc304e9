"""A program in a slot: it enrols, sends from its queue, accepts what is routed to it, acknowledges, moves, drops out.

Theory ------ *Promises.* A message that every counted occupant acknowledged is *done*; each of them was given it once,
or again if it withheld it. A message without these acknowledgements is reported as expired, with the connections on
which they are missing. Nothing is sent with a ticket that the router called stale. A message is accepted only if the
routing table leads it here, and the table's version is then at least the sender's. No message is accepted with a ticket
that the table knows to be stale.

*Assumes.* A best-effort group: words may be lost, doubled or late. Requests are repeated until they are answered, so
every request may be answered twice. Time and chance are handed in.

*States.* ::

    ENROLLING --Ticket--> ENROLLED --drop_out--> LEAVING --Dropped--> OUT
        |  Challenge, then prove()     | NegAck(stale), or silence that the router punished
        |--NegAck--> REFUSED           |--> EXPELLED

``TRANSITIONS`` has each word that a state understands; others are counted and ignored.

*Liveness.* Requests for enrolment, drop-out and changes of routes are repeated every ``ASK_S`` until they are answered.
Messages are sent again by ``SlotOutbox``. A message whose route is in doubt is kept while the router is asked, and
checked again when the answer is there. If the answer is lost, the message comes again, and the question is asked again.

*Knowledge of the map.* ``routes`` is a ``RouteTable``, which answers and information fill (destination routing), or a
``MapRoutes`` with a copy of the whole map. ``legs_of`` is None where a router counts.

Source: the report, sections 2.1 to 2.4. Where the report is silent, ``docs/design/slots.md`` has the decisions.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from ..core.errors import BadInput, PluribusError, Refused
from ..core.ids import ALL
from ..core.limits import SLOT_DOUBTS_MAX, SLOT_QUEUE_MESSAGES
from ..wire.questions import Wrapped
from .carry import Carry
from .check import end_problem
from .inbox import PLAIN, Answer, InboxMemory
from .outbox import Queued, SlotOutbox
from .plan import ASKS, OUT, Connection, End, Plan, Port
from .routes import RouteTable, Stale
from .words import (
    PUT_OFF,
    STALE,
    AckData,
    AckInfo,
    AckRoute,
    AddRoute,
    Alive,
    AnsRoute,
    Challenge,
    Claims,
    CountTtl,
    DelRoute,
    Dropout,
    Dropped,
    Enroll,
    Id,
    KeepAlive,
    Leg,
    NegAck,
    Proofs,
    ReqRoute,
    RouteAdded,
    RouteDeleted,
    SendData,
    SlotChanged,
    Ticket,
    Version,
    Word,
)

ENROLLING, ENROLLED, LEAVING, OUT_OF_IT = "enrolling", "enrolled", "leaving", "out"
REFUSED, EXPELLED = "refused", "expelled"
ASK_S = 0.2
"""Seconds after which a request is repeated."""
ASK_S_MAX = 1.0
CENTRAL = "central"
OWN = -1
"""Stands for the sender of a message that this occupant has sent to its own slot."""


class ArrivedMessage(msgspec.Struct, frozen=True):
    """A message for the application."""

    id: Id
    target: End
    source: End
    sender: int
    body: Wrapped
    asks: bool
    version: Version
    """The version of the routing table by which it was accepted."""
    ticket: int
    """The ticket of its sender."""
    expires_at: float


class Routes(Protocol):
    """An occupant's knowledge of the map."""

    version: Version

    def targets(self, data: SendData, slot: str) -> tuple[Leg, ...] | Stale | None: ...


class _Request:
    """A request that is repeated until it is answered."""

    __slots__ = ("interval_s", "next_at", "word")

    def __init__(self, word: Word, now: float) -> None:
        self.word = word
        self.next_at = now
        self.interval_s = ASK_S


class Occupant:
    """Words come in through ``take``, time through ``tick``; words go out through ``out``. ``on_event`` is called with
    everything for which the application may wait."""

    def __init__(
        self,
        slot: str,
        nonce: int,
        now: float,
        *,
        name: str = "",
        keyed: bool = False,
        claims: Claims = None,
        carry: Carry | None = None,
        capacity: int = SLOT_QUEUE_MESSAGES,
        trusts: bool = False,
        on_event: Callable[[str, Any], None] = lambda what, about: None,
        legs_of: Callable[[End, tuple[End, ...]], tuple[Leg, ...]] | None = None,
        routes: Routes | None = None,
    ) -> None:
        self.slot = slot
        self.nonce = nonce
        self.origin = carry.origin if carry is not None else nonce
        self.state = ENROLLING
        self.reason = ""
        self.ticket = 0
        self.generation = 0
        self.plan: Plan | None = None
        self.roles: tuple[str, ...] = ()
        self.waiting: tuple[str, ...] = ()
        self.by = ""
        self.trusts = trusts
        """Accept messages by the sender's destinations, without asking (source routing)."""
        self.router: tuple[int, int] = (0, 0)
        """Epoch and member of the latest router from which a word came."""
        self.out: list[tuple[int, Word]] = []
        self.on_event = on_event
        self.legs_of = legs_of
        self.table = RouteTable()
        self.routes: Routes = routes if routes is not None else self.table
        self.outbox = SlotOutbox(self._changed, capacity)
        self.memory = InboxMemory()
        self.inbox: dict[str, deque[ArrivedMessage]] = {}
        self.unheard: Counter[str] = Counter()
        """Counters: words that the state did not understand, and messages that were put off."""
        self._held: Counter[tuple[End, str]] = Counter()
        self._requests: dict[int, _Request] = {}
        self._doubts: OrderedDict[Id, tuple[int, SendData]] = OrderedDict()
        self._asked: dict[End, float] = {}
        self._due_at: float | None = None
        if carry is not None:
            self.outbox.bring(carry.queue, now)
            self.outbox.next_number = max(self.outbox.next_number, carry.next_number)
            self.memory.bring(carry.memory)
        if legs_of is None:
            self._ask(nonce, Enroll(nonce, slot, name, keyed=keyed, claims=claims), now)

    # Calls of the application

    def port(self, name: str, *kinds: str) -> Port:
        """The port of that name, if the slot has one and it is of one of these kinds."""
        slot = self.plan.slot(self.slot) if self.plan is not None else None
        ports = slot.ports if slot is not None else ()
        found = next((port for port in ports if port.name == name), None)
        if found is None or found.kind not in kinds:
            fit = ", ".join(port.name for port in ports if port.kind in kinds) or "none"
            raise BadInput(f"slot {self.slot!r} has no port {name!r} that is {' or '.join(kinds)}: it has {fit}")
        return found

    def send(
        self, port: str, body: Wrapped, now: float, *, asks: bool = False, destinations: tuple[End, ...] = ()
    ) -> Queued:
        """Queue a message and send it. ``Overflow`` at a bound; ``Refused`` if this program is not enrolled."""
        if self.state != ENROLLED:
            raise self.refusal()
        self.port(port, ASKS if asks else OUT)
        for end in destinations:
            wrong = end_problem(self.plan, end) if self.plan is not None else None
            if wrong is not None:
                raise BadInput(f"to= names {end}: {wrong.reason}; {wrong.remedy}")
        queued = self.outbox.add(port, body, now)
        queued.asks, queued.destinations = asks, destinations
        self._transmit(queued, now)
        queued.next_at = now + queued.interval_s
        self._due(queued.next_at)
        return queued

    def refusal(self) -> PluribusError:
        """The error for a request that is impossible in this state."""
        return Refused(self.reason or f"this program is {self.state} and does not occupy {self.slot!r}: enroll again")

    def acknowledge(self, arrived: ArrivedMessage, answer: Answer = PLAIN) -> None:
        """The application has dealt with a message; on a port that answers, with this answer."""
        if not self.memory.is_held(arrived.id, arrived.target.port):
            return
        self._let_go(arrived)
        self.memory.acknowledge(arrived.id, arrived.target.port, answer)
        if self.state in (ENROLLED, LEAVING):
            self._accepted(arrived.sender, AckData(arrived.id, self.ticket, arrived.target, *answer))

    def withhold(self, arrived: ArrivedMessage) -> None:
        """Do not acknowledge a message: it stays queued at its sender and comes again."""
        if self.memory.is_held(arrived.id, arrived.target.port):
            self._let_go(arrived)
            self.memory.withhold(arrived.id, arrived.target.port)

    def _let_go(self, arrived: ArrivedMessage) -> None:
        self._held[arrived.source, arrived.target.port] -= 1

    def prove(self, challenge: bytes, proofs: Proofs, now: float, claims: Claims = None) -> None:
        request = self._requests.get(self.nonce)
        if self.state == ENROLLING and request is not None:
            word = msgspec.structs.replace(request.word, challenge=challenge, proofs=proofs, claims=claims)
            self._ask(self.nonce, word, now)

    def route(self, nonce: int, change: Connection | tuple[End, End], now: float) -> None:
        """Ask for a route to be added or deleted; ``on_event("routed", ...)`` has the outcome."""
        if self.state != ENROLLED:
            raise self.refusal()
        if isinstance(change, Connection):
            self._ask(nonce, AddRoute(nonce, self.ticket, self.slot, change), now)
        else:
            self._ask(nonce, DelRoute(nonce, self.ticket, self.slot, *change), now)

    def forget_request(self, nonce: int) -> None:
        """The caller that waited for the answer has given up."""
        self._requests.pop(nonce, None)

    def drop_out(self, now: float, *, end: bool) -> None:
        if self.state == ENROLLED:
            self.state = LEAVING
            for waiting in self.inbox.values():  # these will not be taken; their senders have them
                while waiting:
                    self.withhold(waiting.popleft())
            if self.legs_of is None:  # else the holder of the map is told in another way, and ``left`` is called
                self._ask(self.nonce, Dropout(self.ticket, self.slot, end), now)

    def left(self) -> None:
        self.state, self.reason = OUT_OF_IT, f"this program has left slot {self.slot!r}: enroll again"
        self._requests.clear()
        self.on_event("state", self.state)

    def carry(self, now: float) -> Carry:
        """The state that a moving occupant takes along."""
        return Carry(self.origin, self.outbox.next_number, self.outbox.carried(now), self.memory.carried())

    # Called by the world

    def tick(self, now: float) -> None:
        """Must be called when ``due_at`` has come."""
        for request in list(self._requests.values()):
            if request.next_at <= now:
                request.next_at = now + request.interval_s
                request.interval_s = min(request.interval_s * 1.5, ASK_S_MAX)
                self._say(ALL, request.word)
        if self.state in (ENROLLED, LEAVING):
            self.outbox.expire(now)
            for queued in self.outbox.due(now):
                self._transmit(queued, now)
        else:
            self.outbox.expire(now)
        self._due_at = None
        times = [request.next_at for request in self._requests.values()]
        if (next_at := self.outbox.next_at) is not None:
            times.append(max(next_at, now + 0.01))
        if times:
            self._due(min(times))

    @property
    def due_at(self) -> float | None:
        return self._due_at

    def take(self, sender: int, word: Word, now: float) -> None:
        """A word of the group. It raises nothing, whatever the word is."""
        action = TRANSITIONS.get((self.state, type(word)))
        if action is None:
            self.unheard[type(word).__name__] += 1
            return
        action(self, sender, word, now)

    def granted(self, ticket: Ticket, now: float) -> None:
        """This program occupies its slot."""
        self._requests.pop(self.nonce, None)
        self.state, self.reason = ENROLLED, ""
        self.ticket, self.generation = ticket.number, ticket.generation
        self.plan, self.waiting, self.by, self.roles = ticket.plan, ticket.waiting, ticket.by, ticket.roles
        self.table.note(ticket.version)
        for queued in self.outbox.queue.values():
            queued.hurried()
        self._due(now)
        self.on_event("state", self.state)

    def expelled(self, reason: str) -> None:
        """The ticket is stale. Queued messages stay, for ``carry``."""
        self.state, self.reason = EXPELLED, reason
        self._requests.clear()
        for waiting in self.inbox.values():
            while waiting:
                self.withhold(waiting.popleft())
        self.on_event("state", self.state)

    def replaced(self) -> None:
        """The member's own copy of the map was replaced, perhaps by an older one: known versions are void."""
        self._doubts.clear()  # the messages come again
        self.outbox.count_anew()

    def recount(self, now: float) -> None:
        """The member's own copy of the map has changed: other occupants may be counted now, and doubts solved."""
        if self.legs_of is not None and self.state == ENROLLED:
            for queued in list(self.outbox.queue.values()):
                legs = self.legs_of(self._end(queued.port), queued.destinations)
                self._count(queued.number, legs, self.routes.version)
            self._reconsider(now)

    # Words

    def _ticket(self, sender: int, word: Ticket, now: float) -> None:
        if word.nonce == self.nonce and self._is_router(word.version[0], sender):
            self.granted(word, now)

    def _challenged(self, sender: int, word: Challenge, now: float) -> None:
        if word.nonce == self.nonce:
            self._requests[self.nonce].next_at = now + ASK_S_MAX
            self.on_event("challenge", word)

    def _refused(self, sender: int, word: NegAck, now: float) -> None:
        if word.about == self.nonce:
            self._requests.clear()
            self.state, self.reason = REFUSED, word.reason
            self.on_event("state", self.state)

    def _negative(self, sender: int, word: NegAck, now: float) -> None:
        if word.kind == STALE and word.about == self.ticket:
            if not self._is_router(word.epoch, sender):
                return
            if self.state == LEAVING:  # the answer to the drop-out was lost
                self.left()
            else:
                self.expelled(word.reason)
        elif word.kind != PUT_OFF and word.about in self._requests:
            if word.about != self.nonce:
                self._requests.pop(word.about)
                self.on_event("routed", (word.about, word.reason))
        elif word.about in self.outbox.queue and word.kind not in (STALE, PUT_OFF):
            self.outbox.give_up(word.about)
            self.on_event("denied", (word.about, word.reason))

    def _routed(self, sender: int, word: AckRoute, now: float) -> None:
        if self._requests.pop(word.nonce, None) is not None:
            self.on_event("routed", (word.nonce, ""))

    def _dropped(self, sender: int, word: Dropped, now: float) -> None:
        if word.ticket == self.ticket:
            self.left()

    def _ping(self, sender: int, word: KeepAlive, now: float) -> None:
        self._is_router(word.epoch, sender)
        self._say(sender, Alive(self.ticket, self.slot, self.router[0]))

    def _counted(self, sender: int, word: CountTtl, now: float) -> None:
        if word.id[0] != self.origin or not self._is_router(word.version[0], sender):
            return
        self.generation = max(self.generation, word.generation)
        self.table.note(word.version)
        self._count(word.id[1], word.legs, word.version, word.count)
        self._take_own(word.id[1], now)

    def _acknowledged(self, sender: int, word: AckData, now: float) -> None:
        if word.id[0] != self.origin:
            return
        queued = self.outbox.queue.get(word.id[1])
        if queued is not None and queued.asks and word.ticket not in queued.acks.get(word.target, ()):
            queued.answers.append((word.answer, word.failure))
        self.outbox.acknowledge(word.id[1], word.target, word.ticket, now)

    def _informed(self, sender: int, word: RouteAdded | RouteDeleted | SlotChanged, now: float) -> None:
        epoch = word.epoch if isinstance(word, SlotChanged) else word.version[0]
        if not self._is_router(epoch, sender):
            return
        self.table.informed(word)
        if isinstance(word, SlotChanged):
            self.waiting = word.waiting
            if word.slot == self.slot:
                self.generation = max(self.generation, word.generation)
            self._say(sender, AckInfo(self.ticket, slot=word.slot, generation=word.generation))
            self.outbox.hurry(word.slot)
            if self.outbox.queue:
                self._due(now)
            self.on_event("slot", word)
        else:
            self._say(sender, AckInfo(self.ticket, word.version))
            self.on_event("route", word)
        self._reconsider(now)

    def _answered(self, sender: int, word: AnsRoute, now: float) -> None:
        if self._is_router(word.version[0], sender):
            self._asked.pop(word.source, None)
            self.table.answered(word)
            self._reconsider(now)

    def _is_router(self, epoch: int, sender: int) -> bool:
        """True if the word is from the present router: words of a replaced router are ignored."""
        if (epoch, sender) < self.router:
            self.unheard["fenced"] += 1
            return False
        if (epoch, sender) != self.router:
            self.router = (epoch, sender)
            self.generation = 0  # a router that lost its map counts from the beginning
            for queued in self.outbox.queue.values():
                queued.hurried()
            self._due(-math.inf)
        return True

    # Messages of other occupants

    def _data(self, sender: int, data: SendData, now: float) -> None:
        self.memory.heard(data.id[0], data.floor)
        if self.memory.is_old(data.id):
            return
        if not self._mine(data):
            return
        targets = self._targets(data)
        if targets is None:
            self._doubt(sender, data, now)
        elif isinstance(targets, Stale):
            self.unheard["stale ticket"] += 1
        else:
            self._doubts.pop(data.id, None)
            for leg in targets:
                self._accept(sender, data, leg, now)

    def _mine(self, data: SendData) -> bool:
        """True if a message may be for this slot, as far as the message itself says."""
        if data.wanted is None:
            return not data.destinations or any(end.slot == self.slot for end in data.destinations)
        return any(end.slot == self.slot and (not live or self.ticket in live) for end, live in data.wanted)

    def _targets(self, data: SendData) -> tuple[Leg, ...] | Stale | None:
        if self.by == CENTRAL:  # the delivering process has routed it
            return tuple(Leg(end, SLOT_QUEUE_MESSAGES, 1e9) for end in data.destinations if self._wanted(data, end))
        found = self.routes.targets(data, self.slot)
        if found is None and self.trusts and data.destinations:
            mine = [end for end in data.destinations if end.slot == self.slot]
            return tuple(Leg(end, SLOT_QUEUE_MESSAGES, 1e9) for end in mine)
        if not isinstance(found, tuple):
            return found
        chosen = set(data.destinations)
        return tuple(
            leg
            for leg in found
            if (not chosen or leg.target in chosen) and (data.wanted is None or self._wanted(data, leg.target))
        )

    def _wanted(self, data: SendData, target: End) -> bool:
        return any(end == target and (not live or self.ticket in live) for end, live in data.wanted or ())

    def _accept(self, sender: int, data: SendData, leg: Leg, now: float) -> None:
        id, port = data.id, leg.target.port
        done = self.memory.done(id, port)
        if done is not None:
            self._accepted(sender, AckData(id, self.ticket, leg.target, *done))
            return
        if self.state != ENROLLED or self.memory.is_held(id, port):
            return
        if data.age_s > leg.ttl_s:
            return
        if self._held[data.source, port] >= leg.capacity:
            self.unheard["full"] += 1  # the message comes again
            return
        self.memory.hold(id, port)
        self._held[data.source, port] += 1
        version, expires_at = self.routes.version, now + leg.ttl_s - data.age_s
        arrived = ArrivedMessage(
            id, leg.target, data.source, sender, data.body, data.asks, version, data.ticket, expires_at
        )
        self.inbox.setdefault(port, deque()).append(arrived)
        self.on_event("arrived", port)

    def take_next(self, port: str, now: float) -> ArrivedMessage | None:
        """The next message of a port. An expired message is dropped: its sender reports it."""
        waiting = self.inbox.get(port)
        while waiting:
            arrived = waiting.popleft()
            if arrived.expires_at >= now:
                return arrived
            self.withhold(arrived)
        return None

    def _doubt(self, sender: int, data: SendData, now: float) -> None:
        if len(self._doubts) >= SLOT_DOUBTS_MAX and data.id not in self._doubts:
            self.unheard["doubtful"] += 1  # the message comes again
        else:
            self._doubts[data.id] = (sender, data)
        if self.legs_of is None and now - self._asked.get(data.source, -ASK_S) >= ASK_S:
            self._asked[data.source] = now
            self._say(ALL, ReqRoute(self.ticket, self.slot, data.source))

    def _reconsider(self, now: float) -> None:
        """The table has changed: messages whose route was in doubt are checked again, without a question for each."""
        doubts, self._doubts = self._doubts, OrderedDict()
        for sender, data in doubts.values():
            if self.routes.targets(data, self.slot) is None and not (self.trusts and data.destinations):
                self._doubts[data.id] = (sender, data)
            else:
                self._data(sender, data, now)

    # Sending

    def _end(self, port: str) -> End:
        return End(self.slot, port)

    def _transmit(self, queued: Queued, now: float) -> None:
        if self.legs_of is not None and queued.counted is None:
            legs = self.legs_of(self._end(queued.port), queued.destinations)
            self._count(queued.number, legs, self.routes.version)
            if queued.done:
                return
        word = self._word(queued, now)
        queued.sent = True
        self._say(self.router[1] if self.by == CENTRAL else ALL, word)
        self._take_own(queued.number, now)

    def _word(self, queued: Queued, now: float) -> SendData:
        again = queued.sent and queued.counted is not None
        return SendData(
            (self.origin, queued.number),
            self.ticket,
            self._end(queued.port),
            queued.body,
            self.generation,
            self.routes.version,
            self.outbox.floor,
            max(now - queued.at, 0.0),
            queued.asks,
            queued.destinations,
            queued.wanted() if again or self.legs_of is not None else None,
        )

    def _count(self, number: int, legs: tuple[Leg, ...], version: Version, count: int | None = None) -> None:
        queued = self.outbox.queue.get(number)
        if queued is not None:
            queued.own = tuple(leg for leg in legs if leg.target.slot == self.slot and self.ticket in leg.tickets)
            self.outbox.count(number, legs, version, count)

    def _take_own(self, number: int, now: float) -> None:
        """Take a message for the own slot: the group does not deliver a member's own multicast."""
        queued = self.outbox.queue.get(number)
        if queued is None:
            return
        for leg in queued.own:
            opened = queued.legs.get(leg.target)
            if opened is not None and self.ticket in opened.need - opened.acked:
                self.memory.heard(self.origin, self.outbox.floor)
                self._accept(OWN, self._word(queued, now), leg, now)

    def _accepted(self, sender: int, word: AckData) -> None:
        if sender != OWN:
            self._say(sender, word)
        elif (queued := self.outbox.queue.get(word.id[1])) is not None:
            self._acknowledged(OWN, word, queued.at)

    def _changed(self, queued: Queued) -> None:
        self.on_event("queued", queued)

    def _say(self, to: int, word: Word) -> None:
        self.out.append((to, word))

    def _ask(self, nonce: int, word: Word, now: float) -> None:
        self._requests[nonce] = _Request(word, now)
        self._due(now)

    def _due(self, at: float) -> None:
        if self._due_at is None or at < self._due_at:
            self._due_at = at

    def validate(self) -> None:
        """Assert the invariants."""
        self.outbox.validate()
        self.memory.validate()
        assert len(self._doubts) <= SLOT_DOUBTS_MAX
        assert all(count >= 0 for count in self._held.values()), "a connection holds less than nothing"
        assert self.state != ENROLLED or self.ticket or self.legs_of is not None
        assert self.state in (ENROLLED, LEAVING) or not any(self.inbox.values())


Action = Callable[[Occupant, int, Any, float], None]
TRANSITIONS: dict[tuple[str, type], Action] = {
    (ENROLLING, Ticket): Occupant._ticket,
    (ENROLLING, Challenge): Occupant._challenged,
    (ENROLLING, NegAck): Occupant._refused,
    (ENROLLED, SendData): Occupant._data,
    (ENROLLED, CountTtl): Occupant._counted,
    (ENROLLED, AckData): Occupant._acknowledged,
    (ENROLLED, AnsRoute): Occupant._answered,
    (ENROLLED, AckRoute): Occupant._routed,
    (ENROLLED, RouteAdded): Occupant._informed,
    (ENROLLED, RouteDeleted): Occupant._informed,
    (ENROLLED, SlotChanged): Occupant._informed,
    (ENROLLED, KeepAlive): Occupant._ping,
    (ENROLLED, NegAck): Occupant._negative,
    (LEAVING, SendData): Occupant._data,
    (LEAVING, CountTtl): Occupant._counted,
    (LEAVING, AckData): Occupant._acknowledged,
    (LEAVING, RouteAdded): Occupant._informed,
    (LEAVING, RouteDeleted): Occupant._informed,
    (LEAVING, SlotChanged): Occupant._informed,
    (LEAVING, KeepAlive): Occupant._ping,
    (LEAVING, NegAck): Occupant._negative,
    (LEAVING, Dropped): Occupant._dropped,
}
"""By state: the handler of each word."""
