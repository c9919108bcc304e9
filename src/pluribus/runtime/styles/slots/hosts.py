"""The holders of the map of a software bus on this member: ``RouterHost`` is the report's router, which may move, or
the centralised bus; ``ReplicaHost`` is the copy that every occupant has where there is no router.

The map is kept under ``slots/NAME`` in a store: a file, or a store that the caller gives.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ....core.errors import BadInput, Closed, Damaged, PluribusError, Refused, Uncertain
from ....core.ids import ALL
from ....core.ports import Store
from ....slots.check import checked
from ....slots.language import Source, parse, printed
from ....slots.machine import MapMachine, challenge_for, outcome_of, packed
from ....slots.map import Begin, BusMap, Change, Command, Denied, Expel, Outcome, Resume
from ....slots.occupant import ENROLLED
from ....slots.plan import Plan
from ....slots.router import ADVERTISE_S, SERVING, STARTING, Router, at_once, challenge_word, unseen
from ....slots.words import Advertise, AnsMap, Enquire, ReqMap, SlotChanged, Word
from .deputy import Deputy
from .shelf import Shelf, has_keepers
from .slot import EnrolledSlot
from .station import Station

if TYPE_CHECKING:
    from ...bus import Bus
    from ...group.replica import Replica
    from .programs import Programs

ROUTER, REPLICA, CENTRAL = "router", "replica", "central"
HOSTS = (ROUTER, REPLICA, CENTRAL)
ASKER, ALL_OF_THEM = "asker", "all"
AGAIN_S = 0.05
TEND_S = 5.0

GivenPlan = str | os.PathLike[str] | Plan | Source | bytes
"""An interconnection file, its text, or the map of a router that moved."""


def plan_from(given: GivenPlan) -> Plan | BusMap:
    if isinstance(given, Plan):
        return checked(Source(given, printed(given)))
    if isinstance(given, Source):
        return checked(given)
    if isinstance(given, bytes):
        try:
            return BusMap.restored(given)
        except (msgspec.MsgspecError, ValueError) as error:
            raise BadInput(f"these bytes are no map of a software bus ({error}): give what move() returned") from None
    path = Path(given)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise BadInput(f"the interconnection file {path} cannot be read ({reason}): name a file") from None
    return checked(parse(text, str(path)))


def key_of(name: str) -> str:
    return f"slots/{name}"


class SlotsHost:
    """A software bus, for the member that started it; ``bus.slots`` makes it."""

    closed = False
    programs: Programs | None = None
    """The programs of invoked slots, if they are started here."""

    @property
    def name(self) -> str:
        return self.map.plan.name

    @property
    def map(self) -> BusMap:
        """The present map; do not change it."""
        raise NotImplementedError

    @property
    def state(self) -> str:
        """``starting``, ``waiting`` for required slots, ``running``, ``fenced`` by a later router, or ``stopped``."""
        raise NotImplementedError

    async def running(self, timeout: float | None = None) -> None:
        """Return when every required slot is occupied."""
        raise NotImplementedError

    async def move(self) -> bytes:
        """Stop here, and return the map with which ``bus.slots(...)`` goes on elsewhere. Messages flow meanwhile."""
        raise NotImplementedError

    async def close(self, *, cancel: bool = False) -> None:
        """Stop. With ``cancel=True`` the bus is removed at once from the lists of other members."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.closed:
            await self.close(cancel=True)


class RouterHost(SlotsHost):
    """A router on this member. ``move`` stops it and returns the map; another member can go on with it."""

    def __init__(self, bus: Bus, station: Station, directory: Station, left: Callable[[RouterHost], None]) -> None:
        self._bus = bus
        self._station = station
        self._directory = directory
        self._left = left
        self._changes: list[asyncio.Future[None]] = []
        self._tap = _Adverts(self)
        self._own_store: Any = None
        self.closed = False

    def begin(self, map: BusMap, store: Store | None, answers: str, make: type[Router] = Router) -> None:
        station, bus = self._station, self._bus

        def save(snapshot: bytes, done: Callable[[Exception | None], None]) -> None:
            def saved(error: Exception | None) -> None:
                done(error)
                station.flush()

            assert store is not None
            store.put(key_of(map.plan.name), snapshot, saved)

        self.router = make(
            map,
            station.me,
            station.now(),
            bus._random,
            epoch=max(int(bus._wall() * 1_000), 1),
            save=at_once if store is None else save,
            name=bus.name,
            answers_all=answers == ALL_OF_THEM,
            on_event=self._on_event,
        )
        self._directory.add(self._tap)
        station.add(self.router)

    @property
    def map(self) -> BusMap:
        return self.router.map

    @property
    def state(self) -> str:
        if self.router.state == SERVING:
            return "waiting" if self.router.map.waiting() else "running"
        return self.router.state

    async def running(self, timeout: float | None = None) -> None:
        await self._until(lambda: self.state == "running", timeout)

    async def serving(self, timeout: float | None = None) -> None:
        """Return when the map is on disk and the router answers."""
        await self._until(lambda: self.router.state != STARTING, timeout)

    async def move(self) -> bytes:
        return await self._stop(cancel=False)

    async def close(self, *, cancel: bool = False) -> None:
        await self._stop(cancel=cancel)

    async def _stop(self, *, cancel: bool) -> bytes:
        if self.programs is not None:
            await self.programs.close()
        state = self.router.stop(cancel=cancel)
        self._directory.flush()
        self._station.flush()
        await self._station.drained()
        await self._directory.drained()
        self._station.remove(self.router)
        self._directory.remove(self._tap)
        self.abandon()
        self._left(self)
        if self._own_store is not None:
            self._own_store.close()
        return state

    def abandon(self) -> None:
        self.closed = True
        self._notify()

    def _on_event(self, what: str, about: Any) -> None:
        self._notify()

    def _notify(self) -> None:
        woken, self._changes = self._changes, []
        for future in woken:
            if not future.done():
                future.set_result(None)

    async def _until(self, found: Callable[[], bool], timeout: float | None) -> None:
        async with asyncio.timeout(timeout):
            while not found():
                if self.closed:
                    raise Closed("this router was stopped: start another with bus.slots()")
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._changes.append(future)
                await future

    def __repr__(self) -> str:
        return f"<router of {self.name!r}, {self.state}>"


class ReplicaHost(SlotsHost):
    """No router: this member has a copy of the map, as every occupant has. The eldest member advertises the bus, and
    gives up the tickets of members that are gone."""

    def __init__(
        self,
        bus: Bus,
        station: Station,
        directory: Station,
        replica: Replica[MapMachine],
        left: Callable[[ReplicaHost], None],
    ) -> None:
        self._bus = bus
        self._left = left
        self._station = station
        self._directory = directory
        self._changes: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Future[None]] = []
        self.replica = replica
        self.machine = replica.machine
        self.machine.on_change = self._changed
        self.machine.on_replaced = self._replaced
        self.slots: list[EnrolledSlot] = []
        self.held = False
        """True if an application started the bus here; else the copy is there only for occupants of this member."""
        self.out: list[tuple[int, Word]] = []
        self._advertise_at = station.now()
        self.closed = False
        self.enrolling: set[int] = set()
        """Nonces of this member's enrolments that are not answered."""
        self.deputies: dict[int, Deputy] = {}
        """Deputies, by the guest of a client of this member."""
        self._shelf: Shelf | None = None
        self._life = replica.generation
        self._due = asyncio.Event()
        self._tasks.append(asyncio.ensure_future(self._tend()))
        directory.add(self)  # last: a question may come at once

    @property
    def map(self) -> BusMap:
        if self.machine.map is None:
            raise Closed("this bus has not begun: start it with bus.slots(FILE, by='replica')")
        return self.machine.map

    @property
    def state(self) -> str:
        if self.closed:
            return "stopped"
        if self.machine.map is None:
            return "starting"
        return "waiting" if self.machine.map.waiting() else "running"

    async def call(self, command: Command, timeout: float | None = None) -> Outcome:
        """Apply a command everywhere, and have it on the keepers' disks, if there are any; ``Refused`` if the map does
        not allow it. A command may be applied twice without harm, so a command whose outcome is not known is
        repeated."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while True:
            outcome = await self._ordered(command, until)
            if isinstance(outcome, Denied):
                raise Refused(outcome.reason)
            epoch = self.map.epoch
            try:
                async with asyncio.timeout_at(until):
                    await self._keep()
            except TimeoutError:
                what = f"the map of {self.name!r} has changed, and its keepers did not answer in time"
                raise Uncertain(what) from None
            if self.map.epoch == epoch:  # else it goes on from the keepers' map, without this command
                return outcome

    async def begin(self, plan: Plan, epoch: int) -> None:
        """Begin from the keepers' map, or else from the plan; if the bus is there already, nothing changes."""
        shelf = await self._shelf_open()
        kept = b"" if shelf is None or self.machine.map is not None else await shelf.look()
        await self.call(Resume(0, epoch, kept) if kept else Begin(plan, epoch))

    async def _shelf_open(self) -> Shelf | None:
        if self._shelf is None and has_keepers(self._bus):
            self._shelf = await Shelf.opened(self._bus, self._station.group.name.partition("/")[2])
        return self._shelf

    async def _keep(self) -> None:
        """Put the map where the keepers have it. If their map is later, go on from that one."""
        shelf = await self._shelf_open()
        while shelf is not None and (here := self.machine.map) is not None:
            kept = await shelf.put(here)
            if kept.born == here.born and kept.age <= here.age:
                return
            await self.replica.read(lambda machine: None)  # others may merely be ahead of this copy
            known = self.machine.map
            if known is not None and (known.born != kept.born or known.age < kept.age):
                await self._ordered(Resume(known.epoch, int(self._bus._wall() * 1_000), await shelf.look()), None)

    async def _ordered(self, command: Command, until: float | None) -> Outcome:
        loop = asyncio.get_running_loop()
        while True:
            left_s = None if until is None else max(until - loop.time(), 0.0)
            try:
                return outcome_of(await self.replica.call(packed(command), timeout=left_s))
            except Uncertain:
                if self.closed or (until is not None and loop.time() >= until):
                    raise
                await asyncio.sleep(AGAIN_S)

    async def running(self, timeout: float | None = None) -> None:
        async with asyncio.timeout(timeout):
            while self.state != "running":
                if self.closed:
                    raise Closed("the bus is closed: connect again")
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._changes.append(future)
                await future

    def _replaced(self) -> None:
        for slot in self.slots:
            slot._occupant.replaced()
        self._changed([])

    def _changed(self, changes: list[Change]) -> None:
        here, now = self.machine.map, self._station.now()
        if here is None:
            return
        for slot in list(self.slots):
            occupant = slot._occupant
            if occupant.state != ENROLLED:
                continue
            if not here.valid(occupant.ticket, occupant.slot):
                occupant.expelled(
                    f"ticket {occupant.ticket} of slot {occupant.slot!r} is not valid any more: enroll again"
                )
                continue
            occupant.generation, occupant.waiting = here.generation(occupant.slot), here.waiting()
            for change in changes:
                if isinstance(change, SlotChanged):
                    occupant.outbox.hurry(change.slot)
                slot._saw(change)
            occupant.recount(now)
            occupant._due(now)
            slot._notify()
        for deputy in self.deputies.values():
            deputy.told(changes)
        woken, self._changes = self._changes, []
        for future in woken:
            if not future.done():
                future.set_result(None)
        self._station.flush()

    def _ghosts(self) -> list[int]:
        """Tickets without a holder: of this member, if an enrolment was given up before it was agreed; and, if this is
        the eldest member, of members that are gone."""
        view, me = self._station.group.view, self._station.me
        if self.machine.map is None or me not in view:
            return []
        eldest = view.members[0] == me
        mine = {slot.ticket for slot in self.slots}
        return [
            seat.number
            for seat in self.machine.map.seats.values()
            if (eldest and seat.member not in view)
            or (seat.member == me and seat.number not in mine and seat.nonce not in self.enrolling)
        ]

    async def _tend(self) -> None:
        """Give up tickets without a holder; and put on the keepers the part of the map that is missing there after a
        restart."""
        while True:
            await self._due.wait()
            self._due.clear()
            with suppress(PluribusError):
                for number in self._ghosts():
                    await self.call(Expel(number), timeout=TEND_S)
            with suppress(PluribusError, TimeoutError):
                async with asyncio.timeout(TEND_S):
                    await self._keep()

    # A machine of the directory: it advertises

    @property
    def due_at(self) -> float | None:
        return self._advertise_at

    def tick(self, now: float) -> None:
        self._advertise_at = now + ADVERTISE_S
        view = self._station.group.view
        if view.members and view.members[0] == self._station.me:
            self._advertise(ALL)
        if self._ghosts() or self._life != self.replica.generation:
            self._life = self.replica.generation
            self._due.set()

    def take(self, sender: int, word: Word, now: float) -> None:
        if isinstance(word, Enquire):
            self._advertise(sender)
        elif isinstance(word, ReqMap) and self.machine.map is not None and word.bus == self.name:
            here = self.machine.map
            challenge = challenge_for(self.name, sender, word.nonce)
            if here.plan.see and not word.proofs:
                self.out.append((sender, challenge_word(here.plan, word.nonce, challenge)))
            elif not here.may_see(here.roles_of(challenge, word.proofs, word.claims)):
                self.out.append((sender, unseen(here, word.nonce)))
            else:
                seats = tuple(here.seats.values())
                self.out.append((sender, AnsMap(word.nonce, here.shape, seats, here.version, here.waiting(), REPLICA)))

    def _advertise(self, to: int) -> None:
        here = self.machine.map
        if here is not None:
            waiting, slots, seats = bool(here.waiting()), len(here.plan.slots), len(here.seats)
            self.out.append((to, Advertise(here.plan.name, here.epoch, REPLICA, waiting, slots, seats, self._bus.name)))

    def validate(self) -> None:
        if self.machine.map is not None:
            self.machine.map.validate()

    async def move(self) -> bytes:
        """Nothing has to move: the other members have the map. Returns a copy of it."""
        state = self.map.snapshot()
        await self.close()
        return state

    async def close(self, *, cancel: bool = False) -> None:
        """Leave the map to the others; the bus goes on as long as one of them is there. If this member has occupants,
        it keeps its copy until they leave."""
        self.held = False
        if self.programs is not None:
            await self.programs.close()
            self.programs = None
        if not self.slots:
            await self._leave()

    async def _leave(self) -> None:
        self.abandon()
        self._directory.remove(self)
        await self.replica.close()
        self._left(self)

    def depute(self, guest: int) -> None:
        """Do a router's work for the guest of a client."""
        if guest not in self.deputies:
            self.deputies[guest] = Deputy(self, guest)
            self._station.add(self.deputies[guest])

    def undepute(self, guest: int) -> None:
        deputy = self.deputies.pop(guest, None)
        if deputy is not None:
            deputy.close()
            self._station.remove(deputy)

    def abandon(self) -> None:
        self.closed = True
        for deputy in self.deputies.values():
            deputy.close()
        for task in self._tasks:
            task.cancel()
        woken, self._changes = self._changes, []
        for future in woken:
            if not future.done():
                future.set_result(None)

    def __repr__(self) -> str:
        return f"<copy of the map of a software bus, {self.state}>"


class _Adverts:
    """The part of a router that is in the group of all buses: it advertises its bus, and answers enquiries."""

    def __init__(self, host: RouterHost) -> None:
        self._host = host

    @property
    def out(self) -> list[tuple[int, Word]]:
        return self._host.router.adverts

    @out.setter
    def out(self, words: list[tuple[int, Word]]) -> None:
        self._host.router.adverts = words

    @property
    def due_at(self) -> float | None:
        return self._host.router.due_at

    def take(self, sender: int, word: Word, now: float) -> None:
        """A question that comes in this group is answered in it."""
        router = self._host.router
        kept, router.out = router.out, []
        router.take(sender, word, now)
        router.adverts += router.out
        router.out = kept

    def tick(self, now: float) -> None:
        self._host.router.tick(now)
        self._host._station.flush()

    def validate(self) -> None:
        pass


def load(store: Store, name: str) -> BusMap | None:
    """The map in a store; None if there is none. ``Damaged`` if it differs from the map that was written."""
    found = store.get(key_of(name))
    if found is None:
        return None
    try:
        return BusMap.restored(found)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Damaged(f"the map of bus {name!r} in the store is none ({error}): start with another store") from None
