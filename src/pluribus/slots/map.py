"""The interconnection map while the bus runs: connections, occupants, tickets. A pure state machine.

Theory ------ Two keepers of a map exist, and both apply the same commands to this machine: the router (``router.py``),
one process, which writes each snapshot to disk before it answers; and a replica, where every occupant has the map and
commands come in one order. So all decisions on what is allowed, counted and deleted are made here.

- *Tickets* are numbers that are never used twice, even if two lives of a map go on from one state without knowing each
  other: a ticket is drawn from what its occupant drew (the nonce) and from how many were issued before. It is valid
  while its occupant is in ``seats``. Each change of a slot's occupants raises the slot's *generation*: a program that
  knows an older generation knows that it must ask.
- *Version* counts changes of connections, one a connection, so that a program that missed one notices the gap.
- ``Enrol`` with the same member and nonce gives the same ticket again; ``Leave`` and ``Expel`` of an occupant that is
  not there do nothing; ``Connect`` of ports that are so connected, and ``Disconnect`` of ports that are not, change
  nothing. So every command may be given twice.
- ``Leave(end=True)`` of the last occupant of a slot deletes every connection of that slot, unless the bus is static.
- Rights: a slot's ``enrol`` and the plan's ``reconfigure`` name roles; if they name none, everybody may. An occupant
  has the roles whose passphrases it proved. Occupants of a shadow slot may reconfigure.

Source: the report, sections 1.1 (slots, occupancy), 2.3 (reconfiguration), 2.4.1 (tickets).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from ..core.frame import Number
from ..core.limits import SLOT_CONNECTIONS_MAX, SLOT_OCCUPANTS_MAX
from .check import connection_problem
from .keys import proves
from .plan import REQUIRED, SHADOW, Connection, End, Name, Plan, Text
from .words import Claims, Leg, Proofs, RouteAdded, RouteDeleted, Seat, SlotChanged, Version

_TICKET_MASK = (1 << 62) - 1


class Begin(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """The first command of a replica: it names the bus. A second one changes nothing."""

    plan: Plan
    epoch: Number = 0
    """Later than that of a map that was lost; see ``BusMap.begin``."""


class Enrol(msgspec.Struct, array_like=True, frozen=True, tag=1):
    slot: Name
    member: Number
    nonce: Number
    name: Text = ""
    challenge: bytes = b""
    proofs: Proofs = ()
    claims: Claims = None


class Leave(msgspec.Struct, array_like=True, frozen=True, tag=2):
    number: Number
    end: bool = False


class Expel(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """An occupant was silent. Only this occupant is expelled; others in its slot stay."""

    number: Number


class Connect(msgspec.Struct, array_like=True, frozen=True, tag=4):
    by: Number
    connection: Connection


class Disconnect(msgspec.Struct, array_like=True, frozen=True, tag=5):
    by: Number
    source: End
    target: End


class Resume(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """A later life of a replica begins from this state, if it is another map or is ahead of the present one."""

    instead_of: Number
    """The epoch of the life that ends; in any other epoch the command changes nothing. 0: there was none."""
    epoch: Number
    state: bytes = b""


Command = Begin | Enrol | Leave | Expel | Connect | Disconnect | Resume


class Granted(msgspec.Struct, array_like=True, frozen=True, tag=0):
    seat: Seat
    generation: Number


class Done(msgspec.Struct, array_like=True, frozen=True, tag=1):
    pass


class Denied(msgspec.Struct, array_like=True, frozen=True, tag=2):
    reason: Text
    stale: bool = False


Outcome = Granted | Done | Denied
Change = RouteAdded | RouteDeleted | SlotChanged


class _State(msgspec.Struct, array_like=True, frozen=True):
    plan: Plan
    connections: list[Connection]
    seats: list[Seat]
    generations: dict[str, int]
    version: int
    issued: int
    epoch: int
    born: int = 0


class BusMap:
    """One copy of the map. ``apply`` changes it; ``take_changes`` returns the changes of which occupants must be
    told."""

    def __init__(self, plan: Plan, epoch: int = 0) -> None:
        self.plan = plan
        self.epoch = epoch
        self.born = 0
        """Of a replica: its first epoch. Two maps of different birth are unrelated."""
        self.number = 0
        """The number of changes of connections."""
        self.issued = 0
        self.connections: dict[tuple[End, End], Connection] = {}
        self.seats: dict[int, Seat] = {}
        self.generations: dict[str, int] = {}
        self._of: dict[End, list[Connection]] = {}
        self._in: dict[str, dict[int, Seat]] = {}
        self._changes: list[Change] = []
        self._load(_State(plan, list(plan.connections), [], {}, 0, 0, epoch))

    def begin(self, epoch: int) -> None:
        """Begin a later life of the map, even if an earlier one was lost: its versions are later."""
        self.epoch = epoch

    # Questions

    @property
    def version(self) -> Version:
        return (self.epoch, self.number)

    @property
    def age(self) -> Version:
        """Of two states of one map, the one of the greater age is ahead."""
        return (self.epoch, self.number + sum(self.generations.values()))

    @property
    def shape(self) -> Plan:
        """The plan with the present connections."""
        return msgspec.structs.replace(self.plan, connections=tuple(self.connections.values()))

    def generation(self, slot: str) -> int:
        return self.generations.get(slot, 0)

    def occupants(self, slot: str) -> dict[int, Seat]:
        return self._in.get(slot, {})

    def live(self, slot: str) -> tuple[int, ...]:
        return tuple(self._in.get(slot, ()))

    def waiting(self) -> tuple[str, ...]:
        """Required slots with fewer occupants than they need: they keep the bus *waiting*."""
        return tuple(
            slot.name
            for slot in self.plan.slots
            if slot.kind == REQUIRED and len(self._in.get(slot.name, ())) < slot.least
        )

    def legs(self, source: End, only: Iterable[End] = ()) -> tuple[Leg, ...]:
        """Every connection of a port, with its occupants; ``only`` these targets, if any are named."""
        chosen = set(only)
        return tuple(
            Leg(
                found.target,
                found.capacity,
                found.ttl_s,
                self.live(found.target.slot),
                self.generation(found.target.slot),
            )
            for found in self._of.get(source, ())
            if not chosen or found.target in chosen
        )

    def valid(self, number: int, slot: str) -> bool:
        return number in self._in.get(slot, ())

    def may_see(self, roles: Iterable[str]) -> bool:
        return not self.plan.see or bool(set(roles) & set(self.plan.see))

    def roles_of(self, challenge: bytes, proofs: Proofs, claims: Claims = None) -> tuple[str, ...]:
        """The roles whose passphrases these proofs prove, and those that the access list gives. Only clients are
        checked against a list: a member has every role for which a list alone decides."""
        given = dict(proofs)
        return tuple(
            role.name
            for role in self.plan.roles
            if (role.verifier and role.name in given and proves(role.verifier, challenge, given[role.name]))
            or (role.listed and (not role.verifier if claims is None else role.name in claims))
        )

    # Commands

    def apply(self, command: Command) -> Outcome:
        match command:
            case Begin() | Resume():  # commands about a replica's life: ``MapMachine`` applies them
                return Done()
            case Enrol():
                return self._enrol(command)
            case Leave(number, end):
                return self._leave(number, end)
            case Expel(number):
                return self._leave(number, False)
            case Connect(by, connection):
                return self._reconfigurer(by) or self._connect(connection)
            case Disconnect(by, source, target):
                return self._reconfigurer(by) or self._disconnect(source, target)

    def take_changes(self) -> list[Change]:
        found, self._changes = self._changes, []
        return found

    def _enrol(self, wish: Enrol) -> Outcome:
        slot = self.plan.slot(wish.slot)
        if slot is None:
            names = ", ".join(slot.name for slot in self.plan.slots)
            return Denied(f"bus {self.plan.name!r} has no slot {wish.slot!r}: it has {names}"[:1_000])
        there = self._in.get(wish.slot, {})
        for seat in there.values():
            if (seat.member, seat.nonce) == (wish.member, wish.nonce):
                return Granted(seat, self.generation(wish.slot))
        roles = self.roles_of(wish.challenge, wish.proofs, wish.claims)
        if slot.enrol and not set(roles) & set(slot.enrol):
            return Denied(f"slot {wish.slot!r} is for {', '.join(slot.enrol)}: {self.way_to(slot.enrol)}")
        if len(there) >= slot.greatest:
            return Denied(f"slot {wish.slot!r} has its {slot.greatest} occupants: wait until one leaves")
        if len(self.seats) >= SLOT_OCCUPANTS_MAX:
            return Denied(f"the bus has {SLOT_OCCUPANTS_MAX} occupants, which is the most: wait until one leaves")
        seat = Seat(self._ticket(wish), wish.slot, wish.member, wish.name, roles, wish.nonce)
        self.seats[seat.number] = seat
        self._in.setdefault(wish.slot, {})[seat.number] = seat
        self._changed(wish.slot)
        return Granted(seat, self.generation(wish.slot))

    def _ticket(self, wish: Enrol) -> int:
        self.issued += 1
        drawn = f"{wish.member}/{wish.nonce}/{self.issued}".encode()
        return int.from_bytes(blake2b(drawn, digest_size=8).digest(), "big") & _TICKET_MASK | 1

    def way_to(self, roles: Iterable[str]) -> str:
        """How to get one of these roles."""
        wanted = [role for role in self.plan.roles if role.name in set(roles)]
        ways = ["give key=, its passphrase"] if any(role.verifier for role in wanted) else []
        if any(role.listed for role in wanted):
            rules = " or ".join(f"slot-role:{self.plan.name}/{role.name} hold" for role in wanted if role.listed)
            ways.append(f"have the access list allow {rules}")
        return ", or ".join(ways) or "nobody has such a role: add it to the file"

    def _leave(self, number: int, end: bool) -> Outcome:
        seat = self.seats.pop(number, None)
        if seat is None:
            return Done()
        del self._in[seat.slot][number]
        if end and not self._in[seat.slot] and not self.plan.static:
            for source, target in self.dependent(seat.slot):
                self._disconnect(source, target)
        self._changed(seat.slot)
        return Done()

    def dependent(self, slot: str) -> list[tuple[End, End]]:
        """The connections in which a slot takes part."""
        return [ends for ends in self.connections if slot in (ends[0].slot, ends[1].slot)]

    def _reconfigurer(self, number: int) -> Denied | None:
        seat = self.seats.get(number)
        if seat is None:
            return Denied(f"ticket {number} is not valid any more: enroll again", stale=True)
        if self.plan.static:
            return Denied(f"bus {self.plan.name!r} is static: its connections never change")
        slot = self.plan.slot(seat.slot)
        shadow = slot is not None and slot.kind == SHADOW
        if not shadow and self.plan.reconfigure and not set(seat.roles) & set(self.plan.reconfigure):
            roles = ", ".join(self.plan.reconfigure)
            way = self.way_to(self.plan.reconfigure)
            return Denied(f"an occupant of {seat.slot!r} may not change routes: that is for {roles}; {way}")
        return None

    def _connect(self, wished: Connection) -> Outcome:
        wrong = connection_problem(self.plan, wished)
        if wrong is not None:
            return Denied(f"{wrong.reason}; {wrong.remedy}"[:1_000])
        ends = (wished.source, wished.target)
        if self.connections.get(ends) == wished:
            return Done()
        if ends in self.connections:
            self._disconnect(*ends)
        if len(self.connections) >= SLOT_CONNECTIONS_MAX:
            return Denied(f"the bus has {SLOT_CONNECTIONS_MAX} connections, which is the most: delete one first")
        self.number += 1
        self.connections[ends] = wished
        self._of.setdefault(wished.source, []).append(wished)
        self._changes.append(RouteAdded(self.version, wished))
        return Done()

    def _disconnect(self, source: End, target: End) -> Outcome:
        found = self.connections.pop((source, target), None)
        if found is not None:
            self.number += 1
            self._of[source].remove(found)
            self._changes.append(RouteDeleted(self.version, source, target))
        return Done()

    def _changed(self, slot: str) -> None:
        self.generations[slot] = self.generations.get(slot, 0) + 1
        self._changes.append(SlotChanged(self.epoch, slot, self.generations[slot], self.live(slot), self.waiting()))

    # Snapshots

    def snapshot(self) -> bytes:
        state = _State(
            self.plan,
            list(self.connections.values()),
            list(self.seats.values()),
            self.generations,
            self.number,
            self.issued,
            self.epoch,
            self.born,
        )
        return msgspec.msgpack.encode(state)

    @classmethod
    def restored(cls, state: bytes) -> BusMap:
        """Restore a map; ``msgspec.MsgspecError`` if these bytes are not one."""
        found = msgspec.msgpack.decode(state, type=_State)
        made = cls(found.plan, found.epoch)
        made._load(found)
        return made

    def _load(self, state: _State) -> None:
        self.connections = {(found.source, found.target): found for found in state.connections}
        self.seats = {seat.number: seat for seat in state.seats}
        self.generations = dict(state.generations)
        self.number, self.issued, self.epoch, self.born = state.version, state.issued, state.epoch, state.born
        self._of, self._in = {}, {}
        for found in state.connections:
            self._of.setdefault(found.source, []).append(found)
        for seat in state.seats:
            self._in.setdefault(seat.slot, {})[seat.number] = seat

    def validate(self) -> None:
        """Assert the invariants."""
        assert sorted(self.seats) == sorted(number for there in self._in.values() for number in there)
        assert len(self.seats) <= self.issued, "more tickets than were issued"
        assert sum(map(len, self._of.values())) == len(self.connections) <= SLOT_CONNECTIONS_MAX
        for found in self.connections.values():
            assert connection_problem(self.plan, found) is None, f"{found} cannot be"
        for slot in self.plan.slots:
            assert len(self._in.get(slot.name, ())) <= slot.greatest, f"{slot.name} has too many occupants"
