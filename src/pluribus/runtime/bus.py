"""The bus as an application holds it, and the way onto it: ``pluribus.connect``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from time import time
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from .._speed.waiting import Line
from ..core.errors import BadInput, BadStack, Closed, Refused, Uncertain, Undelivered
from ..core.ids import MemberId, checked_name, new_member_id
from ..core.limits import DRAIN_S
from ..core.ports import Clock, Engine, Ports, Store
from ..core.secret import Secret
from ..core.url import DEFAULT_URL, BusUrl, parse_door, parse_url
from ..engines import engine_for
from ..group.dispatch import Dispatch
from ..group.log import StateMachine
from ..group.notices import Notices
from ..layers.reliable import Reliable
from ..layers.transport import Transport
from ..stack.events import Event, ForcePrimary, Inform, Inquired, Members
from ..stack.layer import Layer, Node
from ..stack.specification import build
from ..stack.stack import Stack
from ..stack.trace import Trace
from ..wire.asking import style_of
from .clients import DoorsFace
from .clients.login import login_from
from .group.founding import MachineLock, founded_by, founders_from
from .group.group import Group
from .group.joining import GroupsFace
from .group.replica import Replica
from .group.secret import Given, catalogue, secret_from, secured
from .group.spreads import spreading
from .group.stability import drain
from .group.straight import go_straight
from .group.survey import report
from .loop.clock import LoopClock, real_random
from .loop.draining import Drain, each_drained
from .loop.events import Events, Listener, Watchers
from .loop.lateness import late_after_s, loaded, watch_loop
from .loop.tracing import FORMAT, Beginning, TraceFile
from .styles import ANSWERED, Faces, style_at
from .styles.style import Asker, S, StylesInUse

BEST_EFFORT = "transport | introductions | inquiry | presence | window | groups"
ADHOC = "transport | introductions | inquiry | presence | window | semantic | groups"
VIEWS = (
    "transport | fragment | introductions | inquiry | detector | reliable | membership | causal | semantic | total"
    " | groups"
)
CROWD = "transport | fragment | inquiry | crowd | groups"
STACKS = {"best-effort": BEST_EFFORT, "adhoc": ADHOC, "views": VIEWS, "crowd": CROWD}
"""Stacks by name, for ``connect(stack=)``."""


class Bus(GroupsFace, DoorsFace, Faces):
    """One member of one bus. ``connect`` makes it; every style of communication hangs on it."""

    def __init__(
        self,
        url: BusUrl,
        name: str,
        ports: Ports,
        specification: str = BEST_EFFORT,
        trace: TraceFile | None = None,
        secret: Secret | None = None,
    ) -> None:
        self.url = url
        self.name = name
        self.me: MemberId = new_member_id(ports.random.getrandbits(64))
        layers = build(specification, catalogue(secret))
        self._specification = specification
        self._secret = secret
        self._trace = trace
        if trace is not None:
            layers.insert(-1, Trace(trace.write))
        self._engine = ports.engine
        self._now = ports.clock.now
        self._wall = ports.clock.now
        """Seconds since 1970; in a world, its own."""
        self._random = ports.random
        self._founding = ports.founding
        self._stack = Stack(layers, ports, Node(int(self.me), name, url.bus))
        if isinstance(self._founding, MachineLock):
            self._founding.shape = self._stack.node.fingerprint
        go_straight(self._stack)
        self._transport = _only(layers, Transport)
        self._dispatch = _only(layers, Dispatch)
        self._dispatch.clock = ports.clock
        self._dispatch.cuts = any("reliability" in layer.provides for layer in layers)
        self._groups: dict[str, Group] = {}
        self._line = Line()
        self._receive = partial(self._line.feed, self._stack.run, self._transport.receive)
        self._replicas: dict[str, Replica[Any]] = {}
        self._styles = StylesInUse()
        self._begin()
        self._opened_at = 0.0
        self._closed = self._closing = False
        self._watchers = Watchers()
        self._notices = Notices(self._watchers.tell)
        self._dispatch.on_event = self._event
        self._stop_watch: Callable[[], None] = lambda: None

    async def open(self) -> None:
        engine = self._stack.ports.engine
        self._opened_at = self._now()
        await engine.open(self._receive, self._room)
        if self._trace is not None:
            shape = (engine.address, engine.path_bytes, engine.buffer_bytes, engine.broadcasts, engine.long_bytes)
            listen_s = None if self._founding is None else self._founding.listen_s
            beginning = Beginning(FORMAT, self._specification, self.url.bus, self.name, int(self.me), *shape)
            self._trace.begin(msgspec.structs.replace(beginning, listen_s=listen_s))
        self._stack.start()

    def style(self, kind: type[S]) -> S:
        """What a style has open on this bus, for styles of your own (``docs/design/styles.md``)."""
        return self._style(kind)

    def _style(self, kind: type[S]) -> S:
        """What a style has open on this bus; it is made when it is first asked for."""
        self._check_open()
        return self._styles.get(kind, self)

    @property
    def _provided(self) -> set[str]:
        return {what for layer in self._stack.layers for what in layer.provides}

    @property
    def clock(self) -> Clock:
        """The time of this bus; in a world, virtual."""
        return self._stack.ports.clock

    @property
    def store(self) -> Store | None:
        """The disk that a world gives this member; None on a real machine."""
        return self._stack.ports.store

    @property
    def eager(self) -> bool:
        """Whether this bus is on real sockets, and may use threads and start programs; false in a world."""
        return self._line.eager

    async def answer(self, request: Any, asker: Asker) -> Any:
        """Answer a question of another program, or of this one: the one door to all styles."""
        self._check_open()
        place = ANSWERED.get(style_of(request))
        if place is None:
            raise Refused(f"nobody here answers {type(request).__name__}: load its style first, with answering()")
        if asker.client:  # here and nowhere else, so that no style can forget it
            await self.guard.admit(request, asker.visitor)
        return await self._style(style_at(place)).handle(request, asker)

    async def guest(self, name: str) -> Bus:
        """Another member of this bus, in this process, for a client that joins groups."""
        engine = engine_for(self.url)
        lock = MachineLock(self.url.bus, engine)
        ports = Ports(clock=self._stack.ports.clock, random=self._random, engine=engine, founding=lock)
        made = await opened(
            self.url, checked_name(name or "guest", "the client"), ports, self._specification, None, self._secret
        )
        made._line.eager = True
        made._wall = self._wall
        return made

    @property
    def members(self) -> dict[MemberId, str]:
        """Everybody on the bus now, by name; this member included."""
        known = self._dispatch.members.get(0)
        return {MemberId(member): name for member, name in known.names.items()} if known else {self.me: self.name}

    @property
    def primary(self) -> bool:
        """Whether this member is in the primary view, where total and safe order go on."""
        return self._dispatch.view.primary

    def force_primary(self) -> None:
        """Found a new primary with the members that are here. Use it only if most members of the last primary are gone
        for good: if they are not, there will be two primaries."""
        self._stack.run(lambda: self._dispatch.tell_down(ForcePrimary()))

    def events(self) -> Events:
        """Iterate over what happens to the bus from now on; ``pluribus.events`` has the types. It ends when the bus is
        closed. An iteration that is too slow gets ``Skipped`` in the place of the oldest events."""
        return self._watchers.iteration(ended=self._closed)

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every event from now on, on the loop of the bus; the returned function ends that."""
        return self._watchers.listen(listener)

    @property
    def closed(self) -> bool:
        return self._closed

    def stats(self) -> dict[str, dict[str, Any]]:
        """What each layer counted, by its name."""
        return self._stack.stats()

    def describe(self) -> str:
        """The stack, top to bottom, a line a layer."""
        return str(self._stack)

    def validate(self) -> None:
        """Assert the invariants of every layer; for tests and the simulator."""
        self._stack.validate()
        for replica in self._replicas.values():
            replica.validate()
        for style in self._styles.all():
            style.validate()

    async def close(self, timeout: float = DRAIN_S) -> None:
        """Leave when every receiver has what was sent; on a stack without reliability, when the engine has sent it.

        ``Undelivered``: ``timeout`` seconds were not enough, or this member was cut off. ``Uncertain``: durable events
        may not be on disk. The bus is closed all the same. With ``timeout=0`` it does not wait, and raises neither.
        """
        if self._closing:
            return
        self._closing = True
        try:
            if timeout > 0:
                await each_drained(self._drains(), timeout)
        finally:
            await self._leave()

    def _drains(self) -> Iterator[Drain]:
        """In this order, because what waits in topics is sent through groups. Asked one after the other: what is there
        to be drained may come while another is."""
        for style in self._styles.all():
            yield style.drain
        reliable = self._stack.find(Reliable)
        if isinstance(reliable, Reliable):
            for relay in list(self._relays.values()):
                yield relay.drained
            yield lambda timeout: drain(self._dispatch, reliable, timeout)

    async def _leave(self) -> None:
        """Close everything. Even if a part fails or is cancelled, no caller is left waiting, and the address is
        freed."""
        try:
            for style in self._styles.all():
                await style.close()
        finally:
            await self._part()

    async def _part(self) -> None:
        try:
            await self._go()
        finally:
            if self._founding is not None:
                self._founding.release()
            if self._trace is not None:
                self._trace.close()

    async def _go(self) -> None:
        for replica in list(self._replicas.values()):
            await replica.close()
        for group in list(self._groups.values()):
            await group.close()
        self._closed = True
        self._stack.stop()
        self._watchers.end()
        self._stop_watch()
        await self._engine.close()

    def abandon(self) -> None:
        """Stop as a crash would: other members are told nothing. The simulator kills members this way."""
        self._closed = self._closing = True
        for style in self._styles.all():
            style.abandon()
        self._stack.abandon()
        if self._founding is not None:
            self._founding.release()
        self._watchers.end()
        for group in self._groups.values():
            group.abandon()
        for replica in self._replicas.values():
            replica.abandon()

    def _event(self, event: Event) -> None:
        if isinstance(event, Inquired):
            styles = {heading: told for style in self._styles.all() for heading, told in style.told().items()}
            told = report(self.name, self._now(), self._stack.stats() | styles)
            self._dispatch.tell_down(Inform(event.member, event.question, told))
        else:
            if isinstance(event, Members):
                self._shown_beside(event)
            self._notices.take(event)

    def _room(self) -> None:
        for channel in self._dispatch.channels.values():
            channel.on_room()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the bus is closed: connect again")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"members: {len(self.members)}"
        return f"<{type(self).__name__} {self.url.text!r}, {self.name!r}, {state}>"

    async def __aenter__(self) -> Bus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closed_after(error)

    async def _closed_after(self, error: BaseException | None) -> None:
        """Close. If the block ended by an error, that error is raised, with what was not delivered as a note."""
        try:
            await self.close()
        except (Undelivered, Uncertain) as lost:
            if error is None:
                raise
            error.add_note(str(lost))


class connect:
    """Join the bus that a URL names.

    The URL defaults to ``$PLURIBUS_URL``, then to multicast on the loopback interface, which does not leave the
    machine. ``name`` is how others see this member. ``stack`` is ``"views"`` (agreed views and every order),
    ``"best-effort"``, ``"adhoc"`` (semantic order without agreed views), ``"crowd"`` (gossip, for very many members),
    or a specification of your own, bottom first. Every member needs the same stack; a client has that of its member.
    ``spread`` says how a message gets to all: ``"multicast"``, ``"one-by-one"``, ``"tree"``, ``"pipelined"``,
    ``"gossip"``, or ``"auto"``, which measures and picks. Members with a ``spread`` may have different ones. ``trace``
    is a file that will hold every stimulus of the run, for ``pluribus replay``. ``secret`` is shared by the members of
    the bus: bytes, text, or the path of a file; by default ``$PLURIBUS_SECRET``, if that is set. With a secret every
    frame is sealed, and a member with another secret, or with none, is refused.

    ``founders`` is how many members the bus's first primary needs: by default the URL's number (``?founders=3``), then
    ``$PLURIBUS_FOUNDERS``, then 1. On one machine 1 is enough. On several machines, give every process the same number:
    a second primary can then be founded only if that many processes start without hearing the first one.

    ``store`` makes this member a keeper of durable topics: a file, or the URL of a PostgreSQL server. The first keeper
    of a bus begins the log; others follow it, and become voters if ``votes`` is true. With ``voters=3`` (given to each
    of the three, with ``votes=True``) the log begins when three voting keepers are there, and all of them are its
    voters. If a store is gone although something was kept in it, opening it is refused; ``fresh=True`` begins another
    store, as a new keeper.
    ``machines`` are state machines of your own, by kind, whose code this keeper has: ``{"counter": Counter}``; use them
    with ``bus.replica(name, kind, durable=True)``. ``serve`` is an address, HOST:PORT, at which this member serves
    clients: programs that are no members, and connect to ``client://HOST:PORT/BUS``. They use the bus with the same
    calls (``docs/clients.md``). ``user`` and ``password``, or ``token``, say who a client is, where the bus has an
    access list; by default ``$PLURIBUS_USER``, ``$PLURIBUS_PASSWORD``, ``$PLURIBUS_TOKEN``. They are never logged.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        stack: str = "views",
        spread: str | None = None,
        trace: str | os.PathLike[str] | None = None,
        secret: Given | None = None,
        store: str | os.PathLike[str] | None = None,
        votes: bool = False,
        voters: int = 1,
        fresh: bool = False,
        machines: Mapping[str, Callable[[], StateMachine]] | None = None,
        founders: int | None = None,
        serve: str | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
    ) -> None:
        self._url = url if url is not None else os.environ.get("PLURIBUS_URL", DEFAULT_URL)
        self._name = name
        self._stack = spreading(STACKS.get(stack, stack), spread)
        self._trace = trace
        self._secret = secret_from(secret)
        self._store = store
        self._votes = votes
        self._voters = voters
        self._founders = founders
        self._fresh = fresh
        self._machines = machines
        self._serve = serve
        self._login = login_from(user, password, token)
        keeper = {"votes": votes, "voters": voters != 1, "fresh": fresh, "machines": machines is not None}
        member = {"store": store, "serve": serve, "trace": trace, "founders": founders, "spread": spread}
        self._for_keepers = [option for option, given in keeper.items() if given]
        self._for_members = [option for option, value in member.items() if value is not None] + self._for_keepers
        login = {"user": user, "password": password, "token": token}
        self._for_clients = [option for option, value in login.items() if value is not None]
        self._bus: Bus | None = None

    def __await__(self) -> Generator[Any, None, Bus]:
        return self._connect().__await__()

    async def __aenter__(self) -> Bus:
        self._bus = await self._connect()
        return self._bus

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bus is not None:
            await self._bus._closed_after(error)

    async def _connect(self) -> Bus:
        url = parse_url(self._url)
        if url.scheme == "client":
            client: Bus = await self._client(url)
            return client
        self._check_member(url)
        name = checked_name(self._name if self._name is not None else f"process-{os.getpid()}", "the member")
        loop, late_s = asyncio.get_running_loop(), late_after_s()
        engine = engine_for(url)
        lock = MachineLock(url.bus, engine)
        ports = Ports(clock=LoopClock(loop), random=real_random(), engine=engine, founding=lock)
        trace = None if self._trace is None else TraceFile(self._trace)
        founders = founders_from(self._founders, url)
        stack = founded_by(self._stack, founders, asked=self._founders is not None)
        stack = stack if self._secret is None else secured(stack)
        bus = await opened(url, name, ports, stack, trace, self._secret)
        bus._line.eager = True
        bus._wall = time
        bus._stop_watch = watch_loop(loop, late_s)
        try:
            if self._store is not None:
                await loaded("pluribus.runtime.keepers.keeping")
                await bus.keeping.keep(
                    self._store, votes=self._votes, voters=self._voters, fresh=self._fresh, machines=self._machines
                )
            if self._serve is not None:
                await loaded("pluribus.runtime.clients.doorman")
                await bus.serve(self._serve, self._secret)
        except BaseException:
            await bus.close(timeout=0)
            raise
        return bus

    def _check_member(self, url: BusUrl) -> None:
        """An option that would change nothing is a mistake of the caller. Nothing was opened yet."""
        if self._serve is not None:
            parse_door(self._serve, url.bus)
        if self._for_clients:
            given = ", ".join(f"{name}=" for name in self._for_clients)
            raise BadInput(f"a member does not log in with {given}: that is for clients, at client://HOST:PORT/BUS")
        if self._for_keepers and self._store is None:
            given = ", ".join(f"{name}=" for name in self._for_keepers)
            raise BadInput(f"{given} is for keepers: give store=, a file or the URL of a PostgreSQL server, too")

    async def _client(self, url: BusUrl) -> Any:
        """No member, but with the face of one."""
        from .clients.bus import ClientBus

        if self._for_members:
            given = ", ".join(f"{name}=" for name in self._for_members)
            raise BadInput(f"a client has no {given}: that is for members; connect with another URL")
        name = checked_name(self._name or f"process-{os.getpid()}", "the client")
        bus = ClientBus(url, name, self._secret, self._login)
        await bus.open()
        return bus


async def opened(
    url: BusUrl,
    name: str,
    ports: Ports,
    specification: str,
    trace: TraceFile | None = None,
    secret: Secret | None = None,
) -> Bus:
    """A bus that is open, or the reason why not, with the engine closed again."""
    engine: Engine = ports.engine
    try:
        bus = Bus(url, name, ports, specification, trace, secret)
        await bus.open()
    except BaseException:  # cancelled, too: a caller who gave up leaves no socket and no file behind
        await engine.close()
        if trace is not None:
            trace.close()
        raise
    return bus


L = TypeVar("L", bound=Layer)


def _only(layers: list[Layer], kind: type[L]) -> L:
    found = [layer for layer in layers if isinstance(layer, kind)]
    if len(found) != 1:
        raise BadStack(f"a bus needs exactly one layer {kind.name!r}: {BEST_EFFORT!r} is an example")
    return found[0]
