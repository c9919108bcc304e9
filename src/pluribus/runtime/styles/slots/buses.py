"""The software buses in which one member takes part: stations, routers, occupants, and the directory of
advertisements."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ....core.errors import BadInput, NoMembers, PluribusError, Refused, Undelivered
from ....core.ids import ALL, checked_name
from ....core.ports import Store
from ....slots.carry import Carry, carry_from
from ....slots.central import CentralBus
from ....slots.guests import Deputise
from ....slots.keys import prove
from ....slots.machine import MapMachine, MapRoutes, challenge_for
from ....slots.map import BusMap, Connect, Disconnect, Enrol, Granted, Leave
from ....slots.occupant import ENROLLED, ENROLLING, Occupant
from ....slots.plan import INVOKED, Connection, End, Plan
from ....slots.router import Router, challenge_word
from ....slots.words import Advertise, Cancel, Challenge, Claims, Enquire, Proofs, Ticket, Word
from ...loop.futures import in_a_thread
from ..style import Asker, Style
from .communications import CommunicationsManager
from .hosts import (
    ALL_OF_THEM,
    ASKER,
    CENTRAL,
    HOSTS,
    REPLICA,
    GivenPlan,
    ReplicaHost,
    RouterHost,
    SlotsHost,
    load,
    plan_from,
)
from .programs import Programs
from .slot import EnrolledSlot
from .station import GROUP, Station

if TYPE_CHECKING:
    from ...bus import Bus
    from ...clients.bus import ClientBus

log = logging.getLogger(__name__)

OTHER_PLAN = "bus %r goes on with the map in %s, which has another plan than the file: begin another store to change it"
ENQUIRE_S = 0.5
NOBODY: Proofs = (("nobody", b""),)
"""The role of a program without a passphrase."""
SILENT_S = 4.0
"""Seconds after which a bus that was not advertised again is forgotten."""


class Slots(Style):
    """The software buses in which one member takes part."""

    on_clients = "pluribus.runtime.styles.slots.buses:Slots"

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.bus: Bus = bus
        self.client = bus.url.scheme == "client"
        self.stations: dict[str, Station] = {}
        self.enrolled: list[EnrolledSlot] = []
        self.hosts: list[RouterHost] = []
        self.replicas: dict[str, ReplicaHost] = {}
        self._machines: dict[str, MapMachine] = {}
        self._directory: BusDirectory | None = None
        self.observe: Callable[[Occupant, str, Any], None] | None = None
        """Called with everything that occupants tell their applications; for the simulator."""

    async def handle(self, request: Any, asker: Asker) -> Any:
        if isinstance(request, Deputise):
            return await self._deputise(request.bus, asker)
        return await super().handle(request, asker)

    async def _deputise(self, name: str, asker: Asker) -> None:
        from ...clients.guests import Guests

        guest = await self.bus._style(Guests).guest_of(asker)
        if guest is None:
            raise BadInput(f"this client is not in the group of bus {name!r}: enroll with client.enroll(...)")
        host = await self.replica(name)
        number = int(guest.me)
        host.depute(number)

        async def let_go() -> None:
            host.undepute(number)

        asker.held["deputy", name] = let_go

    # Stations

    async def station(self, name: str) -> Station:
        checked_name(name, "the software bus")
        found = self.stations.get(name)
        if found is None or found.closed:
            group = await self.bus.group(f"{GROUP}/{name}", own=False)
            found = self.stations.get(name)
            if found is None or found.closed:
                found = self.stations[name] = Station(self.bus, group)
        return found

    async def directory(self) -> BusDirectory:
        if self._directory is None or self._directory.station.closed:
            group = await self.bus.group(GROUP, own=False)
            if self._directory is None or self._directory.station.closed:
                self._directory = BusDirectory(Station(self.bus, group))
        return self._directory

    async def communications(self) -> CommunicationsManager:
        return CommunicationsManager(self, await self.directory())

    # Hosts

    async def host(self, given: GivenPlan, by: str, kept: Any, answers: str, invoke: bool) -> SlotsHost:
        if by not in HOSTS or answers not in (ASKER, ALL_OF_THEM):
            raise BadInput(f"by={by!r} and answers={answers!r}: use by= {', '.join(HOSTS)}, answers= asker or all")
        plan = plan_from(given)
        if by == REPLICA:
            return await self._replicated(plan, kept, invoke)
        name = plan.plan.name if isinstance(plan, BusMap) else plan.name
        if any(host.name == name for host in self.hosts):
            raise BadInput(f"bus {name!r} has its router on this member already: stop that one first")
        own = None
        store: Store | None = None
        if kept is not None:
            if isinstance(kept, str | os.PathLike):
                from ...keepers.keeper import opened_store

                own = opened_store(os.fspath(kept))
                store = cast(Store, own)
            else:
                store = kept
        try:
            saved = load(store, name) if store is not None else None
            if isinstance(plan, BusMap):
                map = plan
                map.epoch = max(map.epoch, saved.epoch if saved is not None else 0)
            else:
                map = saved if saved is not None else BusMap(plan)
                if map.plan != plan:
                    log.warning(OTHER_PLAN, name, kept)
            host = RouterHost(self.bus, await self.station(name), (await self.directory()).station, self._host_left)
        except BaseException:
            if own is not None:
                own.close()
            raise
        host._own_store = own
        self.hosts.append(host)
        host.begin(map, store, answers, CentralBus if by == CENTRAL else Router)
        await host.serving()
        if self.client:
            await self._check_hosting(host)
        if invoke and self.bus.eager and any(slot.kind == INVOKED for slot in map.plan.slots):
            host.programs = Programs(self, name, map.plan)
            host.programs.begin()
        return host

    async def _check_hosting(self, host: RouterHost) -> None:
        """``Refused`` if the access list does not let this client be a router."""
        refusal = ""
        for station in (host._station, host._directory):
            await station.drained()
            refusal = refusal or station.refusal
        if refusal:
            await host.close()
            raise Refused(refusal)

    # The map as a replica

    async def _replicated(self, plan: Plan | BusMap, kept: Any, invoke: bool) -> ReplicaHost:
        if kept is not None:
            raise BadInput(
                "by='replica' keeps the map in every member, and on the keepers of the bus: leave out store="
            )
        moved = isinstance(plan, BusMap)
        if isinstance(plan, BusMap):
            plan = plan.shape
        if self.client:
            raise BadInput("a client has no copy of a map: start the bus on a member, or with by='router' here")
        host = await self.replica(plan.name)
        host.held = True
        await host.begin(plan, max(int(self.bus._wall() * 1_000), 1))
        if host.map.plan != plan and not moved:
            log.warning(OTHER_PLAN, plan.name, "its members")
        if invoke and self.bus.eager and any(slot.kind == INVOKED for slot in plan.slots):
            host.programs = Programs(self, plan.name, plan)
            host.programs.begin()
        return host

    async def replica(self, name: str) -> ReplicaHost:
        """This member's copy of the map of a bus without a router."""
        if "views" not in self.bus._provided:
            raise BadInput("a bus without a router needs agreed views: connect with stack='views'")
        found = self.replicas.get(name)
        if found is None or found.closed:
            station = await self.station(name)
            directory = (await self.directory()).station
            replica = await self.bus.replica(f"slots/{name}", self._machines.setdefault(name, MapMachine()))
            found = self.replicas.get(name)
            if found is None or found.closed:
                found = self.replicas[name] = ReplicaHost(self.bus, station, directory, replica, self._replica_left)
        return found

    def _replica_left(self, host: ReplicaHost) -> None:
        """When the bus is opened again, its map comes from the others or the keepers, and not from this copy."""
        self._machines = {name: machine for name, machine in self._machines.items() if machine is not host.machine}

    async def _enroll_in_map(
        self, name: str, slot: str, label: str, key: str | None, carry: Carry | None, capacity: int
    ) -> EnrolledSlot:
        host = await self.replica(name)
        nonce, me = self.bus._random.getrandbits(62) + 1, int(self.bus.me)
        machine = host.machine
        challenge, proofs = b"", cast(Proofs, ())
        if key is not None and machine.map is not None:
            challenge = challenge_for(name, me, nonce)
            proofs = await self.proofs(challenge_word(machine.map.plan, nonce, challenge), key)
        host.enrolling.add(nonce)
        try:
            outcome = await host.call(Enrol(slot, me, nonce, label, challenge, proofs))
            return self._granted(host, nonce, cast(Granted, outcome), carry, capacity)
        finally:
            host.enrolling.discard(nonce)

    def _granted(
        self, host: ReplicaHost, nonce: int, outcome: Granted, carry: Carry | None, capacity: int
    ) -> EnrolledSlot:
        here, station, machine = host.map, host._station, host.machine
        name, slot = here.plan.name, outcome.seat.slot
        occupant = Occupant(
            slot,
            nonce,
            station.now(),
            carry=carry,
            capacity=capacity,
            legs_of=lambda source, only: host.map.legs(source, only),
            routes=MapRoutes(machine),
        )
        made = EnrolledSlot(station, name, occupant, self._occupant_left)
        occupant.on_event = lambda what, about: self._told(made, what, about)
        number = outcome.seat.number
        made.leave = lambda end: _ignored(host.call(Leave(number, end), timeout=5.0))

        async def change(wished: Connection | tuple[End, End]) -> None:
            connected = isinstance(wished, Connection)
            await host.call(Connect(number, wished) if connected else Disconnect(number, *wished), timeout=10.0)  # type: ignore[misc, arg-type]

        made.change = change
        generation, waiting = here.generation(slot), here.waiting()
        ticket = Ticket(nonce, number, slot, generation, here.version, here.plan, waiting, REPLICA, outcome.seat.roles)
        station.add(occupant)
        occupant.granted(ticket, station.now())
        host.slots.append(made)
        self.enrolled.append(made)
        host._changed([])
        return made

    def _told(self, slot: EnrolledSlot, what: str, about: Any) -> None:
        if self.observe is not None:
            self.observe(slot._occupant, what, about)
        slot._on_event(what, about)

    def _host_left(self, host: RouterHost) -> None:
        if host in self.hosts:
            self.hosts.remove(host)

    # Occupants

    async def enroll(
        self,
        slot: str,
        on: str | None,
        name: str | None,
        key: str | None,
        given: Carry | bytes | None,
        capacity: int,
        trusts: bool,
        timeout: float,
    ) -> EnrolledSlot:
        carry = carry_from(given)
        if capacity < 1:
            raise BadInput(f"capacity={capacity} lets nothing be sent: use 1 or more messages")
        try:
            async with asyncio.timeout(timeout):
                directory = await self.directory()
                advert = await (directory.only() if on is None else directory.named(on))
                on = advert.bus
                if advert.by == REPLICA and not self.client:
                    label = self.bus.name if name is None else name
                    return await self._enroll_in_map(on, slot, label, key, carry, capacity)
                station = await self.station(on)
                if advert.by == REPLICA:
                    await cast("ClientBus", self.bus).line.ask(Deputise(on))
                nonce = self.bus._random.getrandbits(62) + 1
                occupant = Occupant(
                    slot,
                    nonce,
                    station.now(),
                    name=self.bus.name if name is None else name,
                    keyed=key is not None or self.client,
                    claims=() if self.client else None,
                    carry=carry,
                    capacity=capacity,
                    trusts=trusts,
                )
                return await self._enrolled(station, on, occupant, key)
        except TimeoutError:
            where = f"bus {on!r}" if on is not None else "any software bus"
            raise NoMembers(f"no router of {where} answered in {timeout:g} s: start one with bus.slots(FILE)") from None

    async def _enrolled(self, station: Station, on: str, occupant: Occupant, key: str | None) -> EnrolledSlot:
        made = EnrolledSlot(station, on, occupant, self._occupant_left)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        proving: list[asyncio.Task[None]] = []

        def on_event(what: str, about: Any) -> None:
            if what == "challenge":
                if key is not None and not proving:
                    proving.append(asyncio.ensure_future(self._prove(station, occupant, about, key)))
                elif key is None:
                    occupant.prove(about.challenge, NOBODY, station.now(), self.claims(about))
            elif what == "state" and not done.done():
                done.set_result(None)
            self._told(made, what, about)

        occupant.on_event = on_event
        station.add(occupant)
        try:
            await done
        except BaseException:
            station.remove(occupant)
            raise
        finally:
            for task in proving:
                task.cancel()
        if occupant.state in (ENROLLING, ENROLLED):
            self.enrolled.append(made)
            return made
        station.remove(occupant)
        raise Refused(occupant.reason)

    async def _prove(self, station: Station, occupant: Occupant, challenge: Challenge, key: str) -> None:
        proofs = await self.proofs(challenge, key) or NOBODY
        occupant.prove(challenge.challenge, proofs, station.now(), self.claims(challenge))
        station.flush()

    def claims(self, challenge: Challenge) -> Claims:
        """A client claims every role that an access list may give; its member's door removes the roles that it does not
        have."""
        return challenge.listed if self.client else None

    async def proofs(self, challenge: Challenge, key: str) -> Proofs:
        """Proofs for every role; only those of the passphrase's own roles prove anything."""

        def computed() -> Proofs:
            return tuple(
                (name, prove(key, rounds, salt, challenge.challenge)) for name, rounds, salt in challenge.salts
            )

        return await in_a_thread(computed) if self.bus.eager else computed()

    def _occupant_left(self, slot: EnrolledSlot) -> None:
        slot._station.remove(slot._occupant)
        if slot in self.enrolled:
            self.enrolled.remove(slot)
        host = self.replicas.get(slot.bus_name)
        if host is not None and slot in host.slots:
            host.slots.remove(slot)

    # The life of the bus itself

    async def drain(self, timeout: float) -> None:
        for slot in list(self.enrolled):
            await slot._drain(timeout)
        waiting = sum(slot.queued for slot in self.enrolled if slot.state == ENROLLED)
        if waiting:
            raise Undelivered(f"{waiting} messages of software buses wait for acknowledgements: move() keeps them")

    async def close(self) -> None:
        for holder in (*self.hosts, *self.replicas.values()):
            if holder.programs is not None:
                await holder.programs.close()
                holder.programs = None
        for slot in list(self.enrolled):
            await slot.close()
        for host in list(self.hosts):
            await host.close(cancel=True)
        for replica in list(self.replicas.values()):
            if replica.programs is not None:
                await replica.programs.close()
            await replica._leave()
        for station in self.stations.values():
            await station.close()
        if self._directory is not None:
            await self._directory.station.close()

    def abandon(self) -> None:
        for slot in list(self.enrolled):
            slot.abandon()
        for host in list(self.hosts):
            host.abandon()
        for replica in self.replicas.values():
            replica.abandon()
        for station in self.stations.values():
            station.abandon()
        if self._directory is not None:
            self._directory.station.abandon()

    def validate(self) -> None:
        for station in self.stations.values():
            station.validate()


class BusDirectory:
    """The advertised buses, as one member knows them."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.out: list[tuple[int, Word]] = []
        self.buses: dict[str, tuple[Advertise, int, float]] = {}
        """By name: the advertisement, its sender, and when it came."""
        self._changes: list[asyncio.Future[None]] = []
        station.add(self)

    @property
    def due_at(self) -> float | None:
        return None

    def tick(self, now: float) -> None:
        pass

    def validate(self) -> None:
        pass

    def take(self, sender: int, word: Word, now: float) -> None:
        if isinstance(word, Advertise):
            known = self.buses.get(word.bus)
            if known is None or now - known[2] > SILENT_S or (word.epoch, sender) >= (known[0].epoch, known[1]):
                self.buses[word.bus] = (word, sender, now)
        elif isinstance(word, Cancel):
            known = self.buses.get(word.bus)
            if known is not None and word.epoch >= known[0].epoch:
                del self.buses[word.bus]
        woken, self._changes = self._changes, []
        for future in woken:
            if not future.done():
                future.set_result(None)

    def here(self) -> dict[str, Advertise]:
        """The buses that were advertised lately."""
        now = self.station.now()
        self.buses = {name: found for name, found in self.buses.items() if now - found[2] <= SILENT_S}
        return {name: found[0] for name, found in sorted(self.buses.items())}

    def enquire(self) -> None:
        self.out.append((ALL, Enquire()))
        self.station.flush()

    async def changed(self, timeout: float | None) -> None:
        """Return at the next advertisement or cancellation, or after ``timeout`` seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes.append(future)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            pass

    async def named(self, name: str) -> Advertise:
        """The advertisement of a bus."""
        while name not in self.here():
            self.enquire()
            await self.changed(ENQUIRE_S)
        return self.here()[name]

    async def only(self) -> Advertise:
        """The one bus that is advertised; ``BadInput`` if there are several."""
        while not self.here():
            self.enquire()
            await self.changed(ENQUIRE_S)
        found: Sequence[Advertise] = list(self.here().values())
        if len(found) > 1:
            names = ", ".join(advert.bus for advert in found)
            raise BadInput(f"there are several software buses here, {names}: say which with on=")
        return found[0]


async def _ignored(call: Awaitable[Any]) -> None:
    """A member that leaves does not wait for a primary: the eldest member gives its ticket up when it is gone."""
    with suppress(PluribusError):
        await call
