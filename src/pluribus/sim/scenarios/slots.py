"""Software buses: producers, consumers and an operator come, move, crash and leave while the router moves too."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from ...core.errors import (
    Closed,
    Damaged,
    Expired,
    NotPrimary,
    Overflow,
    PluribusError,
    Refused,
    RemoteError,
    Uncertain,
    Violation,
)
from ...core.ids import MessageId
from ...core.limits import PATH_BYTES_LOOPBACK
from ...runtime.bus import BEST_EFFORT, VIEWS, Bus
from ...runtime.styles.slots.buses import Slots
from ...runtime.styles.slots.hosts import RouterHost
from ...runtime.styles.slots.slot import EnrolledSlot, SlotMessage
from ...runtime.styles.slots.station import Station
from ...slots.carry import Carry
from ...slots.check import plan_of
from ...slots.map import Change
from ...slots.occupant import ArrivedMessage, Occupant
from ...slots.outbox import Queued
from ...slots.words import AnsRoute, Dropout, RouteAdded, RouteDeleted, SendData, SlotChanged, Word
from ..checkers.slots import (
    answered,
    dependent_routes_deleted,
    done_means_acknowledged,
    ended,
    everybody_counted_has_it,
    given_once,
    reached_in_the_end,
    routed,
    sent_by_somebody,
    stale_tickets_refused,
)
from ..machinery.chaos import STRIKES, restore_primary, torment
from ..machinery.history import Happening, History
from ..machinery.network import Medium
from ..machinery.world import World
from . import Scenario

PLAN = """
bus play {quiet}
slot producer 0..many {{ out red out green asks query }}
slot alpha {{ in in }}
slot beta 0..2 {{ in in answers query }}
slot spare {{ in in }}
slot eye shadow
producer.red -> alpha.in ttl 20 s
producer.red -> beta.in ttl 20 s
producer.green -> beta.in ttl 3 s capacity 50
producer.query -> beta.query
"""
SPARE = ("producer.green", "spare.in")
TORMENT_S = 20.0
CALM_S = 40.0
LAST_ROUNDS = 5
NAME = "play"


class Book:
    """The record of the run: events of programs and routers."""

    def __init__(self, world: World, history: History) -> None:
        self.world = world
        self.history = history
        self.ended: set[int] = set()
        """Tickets whose programs have left for good."""
        self.live: dict[tuple[int, str], tuple[int, tuple[int, ...]]] = {}
        self.counted: set[MessageId] = set()

    def add(self, what: str, group: str = "", id: MessageId = (0, 0), body: bytes = b"", **more: Any) -> None:
        self.history.add(Happening(self.world.now, more.pop("member", 0), what, group, id, body, **more))
        self.world.note(what, group, repr(id).encode())

    def heard(self, sender: int, to: int, word: Word) -> None:
        """Record a word that a router received."""
        if isinstance(word, Dropout) and word.end:
            self.ended.add(word.ticket)

    def observe(self, occupant: Occupant, what: str, about: Any) -> None:
        """Record an event of a sender's queue."""
        if what == "queued":
            self.settled(about, occupant.origin)
        elif what == "denied":
            self.add("refused", id=(occupant.origin, about[0]))

    def settled(self, queued: Queued, origin: int) -> None:
        id, port = (origin, queued.number), f"producer.{queued.port}"
        if queued.counted is not None and id not in self.counted:
            self.counted.add(id)
            needs = [(str(end), ticket) for end, leg in queued.legs.items() for ticket in sorted(leg.need)]
            body = " ".join(leg for leg, _ in needs).encode()
            self.add("counted", port, id, body, members=tuple(ticket for _, ticket in needs))
        if queued.expired:
            self.add("expired", port, id, " ".join(map(str, queued.expired)).encode())
        if queued.done:
            acks = [(str(end), ticket) for end, tickets in queued.acks.items() for ticket in sorted(tickets)]
            legs = " ".join(leg for leg, _ in acks).encode()
            self.add("done", port, id, legs, members=tuple(ticket for _, ticket in acks))

    def changed(self, word: Change) -> None:
        """Record a change of a router's map."""
        match word:
            case RouteAdded(version, made):
                self.add("route+", f"{made.source}>{made.target}", parent=version)
            case RouteDeleted(version, source, target):
                self.add("route-", f"{source}>{target}", parent=version)
            case SlotChanged(epoch, slot, generation, live):
                self.add("occupied", slot, members=live)
                before = self.live.get((epoch, slot), (0, ()))
                if generation > before[0]:
                    self.live[epoch, slot] = (generation, live)
                    if not live and before[1] and before[1][0] in self.ended:
                        self.add("emptied", slot)


class Routing:
    """The operator: it knows where the router is, and has the map while the router moves."""

    def __init__(self, world: World, book: Book, plan: Any, answers: str) -> None:
        self.world = world
        self.book = book
        self.plan = plan
        self.answers = answers
        self.home = 0
        self.state: bytes | None = None
        self.host: RouterHost | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start the router on its machine, if that is up: with the map that it was handed, or with the map on disk."""
        async with self._starting:
            host = self.world.hosts[self.home]
            bus = host.bus
            if bus is None or (self.host is not None and not self.host.closed and self.host._bus is bus):
                return
            given = self.plan if self.state is None else self.state
            try:
                try:
                    await self._begin(bus, given, host.disk)
                except Damaged:  # a bit has flipped on its disk: it begins anew, and everybody enrols again
                    await self._begin(bus, given, None)
            except PluribusError:
                if not bus.closed:
                    raise

    async def _begin(self, bus: Bus, given: Any, disk: Any) -> None:
        found = await bus.slots(given, store=disk, answers=self.answers)
        assert isinstance(found, RouterHost)
        self.host, self.state = found, None
        edges = " ".join(f"{a}>{b}" for a, b in found.map.connections)
        self.book.add("map", NAME, body=edges.encode(), parent=found.map.version)
        for slot in ("alpha", "beta", "spare"):
            self.book.add("occupied", slot, members=found.map.live(slot))
        found._station.taps.append(self.book.heard)
        tell = found.router.on_event

        def on_event(what: str, about: Any) -> None:
            if what == "changed":
                self.book.changed(about)
            tell(what, about)

        found.router.on_event = on_event

    async def move(self) -> None:
        host = self.host
        if host is None or host.closed or host.state not in ("running", "waiting"):
            return
        self.home = self.world.random.randrange(len(self.world.hosts))
        self.state = await host.move()
        await self.start()


class Copies:
    """No router: every machine has a copy of the map."""

    def __init__(self, world: World, book: Book, plan: Any) -> None:
        self.world = world
        self.book = book
        self.plan = plan
        self._begun: set[int] = set()

    async def start(self) -> None:
        for bus in self.world.buses:
            if int(bus.me) not in self._begun:
                self._begun.add(int(bus.me))
                asyncio.create_task(self._begin(bus))  # noqa: RUF006 - it ends with the bus

    async def _begin(self, bus: Bus) -> None:
        try:
            await bus.slots(self.plan, by="replica")
        except PluribusError:
            if not bus.closed:
                raise

    async def move(self) -> None:
        """Do nothing: every machine has a copy of the map."""
        await self.start()


class Role:
    """One program: it occupies a slot on some machine. When the machine crashes, the program starts on another one, as
    a new program."""

    def __init__(self, play: Play, slot: str) -> None:
        self.play = play
        self.world = play.world
        self.book = play.book
        self.slot = slot
        self.current: EnrolledSlot | None = None
        self.bus: Bus | None = None
        self.task = asyncio.create_task(self._live())
        self._versions: dict[MessageId, tuple[int, int]] = {}
        self._told: dict[str, tuple[int, int, tuple[int, ...]]] = {}

    async def _live(self) -> None:
        random, carry = self.world.random, None
        while not self.play.over:
            buses = self.world.buses
            if not buses:
                await asyncio.sleep(0.2)
                continue
            bus = self.bus = random.choice(buses)
            try:
                style = bus._style(Slots)
                style.observe = self.book.observe
                self._listen(await style.station(NAME))
                slot = await bus.enroll(self.slot, on=NAME, carry=carry, timeout=3)
            except PluribusError:
                await asyncio.sleep(random.random())
                continue
            self._watch(slot)
            carry = await self._occupy(slot, bus)
            self.current = None
            if carry is None:
                self.book.add("lost", id=(slot._occupant.origin, 0))
            await asyncio.sleep(random.random() * (0 if self.play.calm else 2))

    def _listen(self, station: Station) -> None:
        """Record the words that this member receives, beginning before it enrols."""
        versions: dict[MessageId, tuple[int, int]] = {}
        live: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        self._versions, self._told = versions, live

        def told_of(epoch: int, slot: str, word: SlotChanged | AnsRoute) -> None:
            if (epoch, word.generation) >= live.get(slot, (0, 0, ()))[:2]:
                live[slot] = (epoch, word.generation, word.live)

        def tap(sender: int, to: int, word: Word) -> None:
            if isinstance(word, SendData):
                versions[word.id] = min(word.version, versions.get(word.id, word.version))
            elif isinstance(word, SlotChanged):
                told_of(word.epoch, word.slot, word)
            elif isinstance(word, AnsRoute):
                told_of(word.version[0], word.source.slot, word)

        station.taps.append(tap)

    def _watch(self, slot: EnrolledSlot) -> None:
        occupant, on_event = slot._occupant, slot._occupant.on_event

        def told(what: str, about: Any) -> None:
            if what == "arrived":
                self._accepted(occupant.inbox[about][-1], occupant.origin, occupant.ticket)
            on_event(what, about)

        occupant.on_event = told
        self.current = slot
        self.book.add("enrolled", self.slot, chain=(occupant.origin, occupant.ticket))

    def _accepted(self, arrived: ArrivedMessage, origin: int, ticket: int) -> None:
        told = self._told.get(arrived.source.slot)
        stale = told is not None and arrived.version[0] == told[0] and arrived.ticket not in told[2]
        knew = self._versions.get(arrived.id, (0, 0))
        body = str(arrived.source).encode()
        self.book.add(
            "accept",
            str(arrived.target),
            arrived.id,
            body,
            chain=(origin, ticket),
            parent=arrived.version,
            members=knew,
            orphan=stale,
        )

    async def _occupy(self, slot: EnrolledSlot, bus: Bus) -> Carry | None:
        """Occupy the slot; returns the state that the program takes along, or None if the machine crashed."""
        readers = [asyncio.create_task(self._read(slot, port)) for port in PORTS.get(self.slot, ())]
        try:
            return await self._work(slot, bus)
        finally:
            for reader in readers:
                reader.cancel()

    async def _work(self, slot: EnrolledSlot, bus: Bus) -> Carry | None:
        random = self.world.random
        while not self.play.over:
            await asyncio.sleep(random.random() * 0.3)
            try:
                if not self.play.calm and random.random() < 0.02:
                    return await slot.move(drain=random.random() < 0.3, timeout=2)
                if self.slot == "producer" and not self.play.calm:
                    for _ in range(random.randrange(1, 4)):
                        await self.send(slot, random.choice(("red", "green", "query")))
                elif self.slot == "eye" and not self.play.calm:
                    change = slot.add_route if random.random() < 0.6 else slot.del_route
                    await change(*SPARE, timeout=2)
                elif self.slot == "spare" and not self.play.calm and random.random() < 0.25:
                    await slot.drop_out(timeout=2)
                    return None
                if slot.state != "enrolled":
                    return None if bus.closed else slot.carry()
            except Closed:
                return None
            except Refused:
                if not bus.closed and slot.state != "enrolled":
                    return slot.carry()
            except (Uncertain, Expired, Overflow, NotPrimary):
                pass
        return slot.carry()

    async def send(self, slot: EnrolledSlot, port: str) -> None:
        """Send on a port, in one of several ways."""
        random, occupant = self.world.random, slot._occupant
        number = occupant.outbox.next_number
        id = (occupant.origin, number)
        body = f"{port} {number} {occupant.origin}"
        self.book.add("send", f"producer.{port}", id, body.encode())
        try:
            if port == "query":
                found = await slot.ask(port, body, timeout=random.choice((0.5, 2.0)))
                self.book.add("answered", body, id, found.encode())
            else:
                wait, timeout = random.choice((None, None, "first", "all")), random.choice((0.2, 2.0, 5.0))
                await slot.send(port, body, wait=wait, timeout=timeout)
        except Overflow:
            self.book.add("refused", id=id)
            raise
        except RemoteError:
            pass

    async def _read(self, slot: EnrolledSlot, port: str) -> None:
        try:
            async for message in slot.port(port):
                await self._handle(slot, message)
        except PluribusError:
            pass

    async def _handle(self, slot: EnrolledSlot, message: SlotMessage) -> None:
        random, occupant = self.world.random, slot._occupant
        label = f"{self.slot}.{message.port}"
        more: dict[str, Any] = {"chain": (occupant.origin, occupant.ticket)}
        self.book.add("deliver", label, message.id, message.body.encode(), **more)
        done = False
        try:
            await asyncio.sleep(random.random() * 0.05)
            if random.random() < 0.1 and not message.asks and not self.play.settled:
                message.withhold()
                self.book.add("withhold", label, message.id, **more)
                return
            self.book.add("ack", label, message.id, **more)
            done = True
            if message.asks:
                message.reply(f"answer to {message.body}")
            else:
                message.acknowledge()
        finally:
            if not done:  # its program ended with the message in hand
                message.withhold()
                self.book.add("withhold", label, message.id, **more)


PORTS = {"alpha": ("in",), "beta": ("in", "query"), "spare": ("in",)}
ROLES = ("producer", "producer", "alpha", "beta", "beta", "spare", "eye")


class Play:
    def __init__(self, world: World, history: History, replicated: bool = False) -> None:
        self.world = world
        self.replicated = replicated
        self.book = Book(world, history)
        self.calm = self.over = False
        self.settled = False
        """True at the end: messages must be acknowledged soon, so no program withholds one."""
        quiet = "quiet" if world.seed % 3 == 2 else ""
        answers = "all" if world.seed % 5 == 4 else "asker"
        plan = plan_of(PLAN.format(quiet=quiet))
        self.routing: Routing | Copies
        self.routing = Copies(world, self.book, plan) if replicated else Routing(world, self.book, plan, answers)
        self.roles: list[Role] = []

    async def run(self) -> None:
        world, random = self.world, self.world.random
        await self.routing.start()
        self.roles = [Role(self, slot) for slot in ROLES]
        moving = asyncio.create_task(self._move_router())

        async def restarted(number: int, bus: Bus) -> None:
            if isinstance(self.routing, Copies) or number == self.routing.home:
                await self.routing.start()

        await torment(world, TORMENT_S, restarted)
        self.calm = True
        await moving
        await self.routing.start()
        await asyncio.sleep(CALM_S / 2)
        if self.replicated:
            restore_primary(world)
        await asyncio.sleep(CALM_S / 2)
        for role in self.roles:
            if role.current is None or role.current.state != "enrolled":
                raise Violation(f"{role.slot} does not occupy its slot {CALM_S:g} s after the last fault")
        self.settled = True
        self.book.add("settled")
        await asyncio.sleep(0.001)
        for _ in range(LAST_ROUNDS):
            sending = [role for role in self.roles if role.slot == "producer"]
            sends = [self._last(role, random.choice(("red", "query"))) for role in sending]
            await asyncio.gather(self.routing.move(), *sends)
        await asyncio.sleep(4)
        self.over = True
        world.validate()
        await asyncio.gather(*(role.task for role in self.roles))

    async def _last(self, role: Role, port: str) -> None:
        for _ in range(4):
            await asyncio.sleep(self.world.random.random() * 0.3)
            assert role.current is not None
            with suppress(Uncertain):  # the checker looks at when it was done
                await role.send(role.current, port)

    async def _move_router(self) -> None:
        while not self.calm:
            await asyncio.sleep(1 + self.world.random.random() * 5)
            if isinstance(self.routing, Routing) and self.routing.host is not None and not self.routing.host.closed:
                await self.routing.move()
            else:
                await self.routing.start()


async def play(world: World, history: History) -> None:
    await Play(world, history).run()


async def play_replicated(world: World, history: History) -> None:
    await Play(world, history, replicated=True).run()


SLOTS = Scenario(
    "slots",
    "a software bus whose occupants and router move, crash and change routes, under every fault",
    BEST_EFFORT,
    play,
    {
        "given_once": given_once,
        "done_means_acknowledged": done_means_acknowledged,
        "everybody_counted_has_it": everybody_counted_has_it,
        "ended": ended,
        "sent_by_somebody": sent_by_somebody,
        "routed": routed,
        "stale_tickets_refused": stale_tickets_refused,
        "dependent_routes_deleted": dependent_routes_deleted,
        "answered": answered,
        "reached_in_the_end": reached_in_the_end,
    },
    STRIKES,
    members_min=3,
    members_max=5,
    media=tuple(Medium(broadcasts=broadcasts, path_bytes=PATH_BYTES_LOOPBACK) for broadcasts in (True, False)),
)


SLOTS_REPLICA = Scenario(
    "slots-replica",
    "a software bus without a router: every member has the map, under every fault",
    VIEWS,
    play_replicated,
    {
        "given_once": given_once,
        "done_means_acknowledged": done_means_acknowledged,
        "ended": ended,
        "sent_by_somebody": sent_by_somebody,
        "routed": routed,
        "answered": answered,
        "reached_in_the_end": reached_in_the_end,
    },
    STRIKES,
    members_min=3,
    members_max=5,
    media=tuple(Medium(broadcasts=broadcasts, path_bytes=PATH_BYTES_LOOPBACK) for broadcasts in (True, False)),
)
