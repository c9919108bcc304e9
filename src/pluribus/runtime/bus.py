"""The bus as an application holds it, and the way onto it: ``pluribus.connect``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Sequence
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.errors import BadInput, BadStack, Closed, GroupMismatch, Undelivered, Unreachable
from ..core.ids import MemberId, checked_name, new_member_id
from ..core.limits import CACHE_ENTRIES_MAX, DRAIN_S
from ..core.ports import Datagram, Engine, Ports, Random
from ..core.secret import Secret
from ..core.url import DEFAULT_URL, BusUrl, parse_url
from ..engines import engine_for
from ..group.dispatch import Dispatch
from ..group.log import StateMachine
from ..group.notices import Notices
from ..group.safelog import SafeLog
from ..group.stalled import WAIT, checked_wish
from ..group.state import State
from ..layers.reliable import Reliable
from ..layers.transport import Transport
from ..stack.events import Event, ForcePrimary, Inform, Inquired
from ..stack.layer import Layer, Node
from ..stack.specification import build
from ..stack.stack import Stack
from ..stack.trace import Trace
from .arrivals import Line
from .asking import ANSWER_S
from .clock import LoopClock, real_random
from .events import Events, Listener, Watchers
from .group import Group
from .lateness import watch_loop
from .objects import Objects
from .replica import Replica
from .secret import Given, catalogue, secret_from, secured
from .stability import drain
from .survey import report
from .topical import Topical
from .tracing import FORMAT, Beginning, TraceFile

if TYPE_CHECKING:  # loaded by those who use them, so that ``import pluribus`` stays quick
    from .cache import Cache
    from .doorman import Doorman
    from .durable import Durable, Log
    from .follower import Mailbox
    from .keeping import Keeping
    from .notifications import Notifications
    from .pubsub import Topics

BEST_EFFORT = "transport | introductions | inquiry | presence | window | groups"
ADHOC = "transport | introductions | inquiry | presence | window | semantic | groups"
VIEWS = (
    "transport | fragment | introductions | inquiry | detector | reliable | membership | causal | semantic | total"
    " | groups"
)
CROWD = "transport | fragment | inquiry | crowd | groups"
STACKS = {"best-effort": BEST_EFFORT, "adhoc": ADHOC, "views": VIEWS, "crowd": CROWD}
"""Stacks by name, for ``connect(stack=)``."""
JOIN_S = 30.0
"""A group that could not be joined by then is reported: the members of the bus do not agree on a view."""

M = TypeVar("M", bound=StateMachine)


class Bus(Topical):
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
        self._trace = trace
        if trace is not None:
            layers.insert(-1, Trace(trace.write))
        self._engine = ports.engine
        self._now = ports.clock.now
        self._wall = ports.clock.now
        """Seconds since 1970; in a world, its own."""
        self._random = ports.random
        self._stack = Stack(layers, ports, Node(int(self.me), name, url.bus))
        self._transport = _only(layers, Transport)
        self._dispatch = _only(layers, Dispatch)
        self._dispatch.clock = ports.clock
        self._dispatch.cuts = any("reliability" in layer.provides for layer in layers)
        self._groups: dict[str, Group] = {}
        self._line = Line()
        self._eager = False
        """Whether readers go on as soon as what they wait for was received; in a world they take turns."""
        self._replicas: dict[str, Replica[Any]] = {}
        self._topics: Topics | None = None
        self._keeping: Keeping | None = None
        self._doors: list[Doorman] = []
        self._closed = self._closing = False
        self._watchers = Watchers()
        self._notices = Notices(self._watchers.tell)
        self._dispatch.on_event = self._event
        self._stop_watch: Callable[[], None] = lambda: None

    async def open(self) -> None:
        engine = self._stack.ports.engine
        await engine.open(self._receive, self._room)
        if self._trace is not None:
            shape = (engine.address, engine.path_bytes, engine.buffer_bytes)
            self._trace.begin(Beginning(FORMAT, self._specification, self.url.bus, self.name, int(self.me), *shape))
        self._stack.start()

    @property
    def _provided(self) -> set[str]:
        return {what for layer in self._stack.layers for what in layer.provides}

    @property
    def orders(self) -> tuple[str, ...]:
        """The orders that the stack of this bus offers, the default first."""
        provided = self._provided
        basic = ("fifo", "none") if "reliability" in provided else ("none", *({"fifo"} & provided))
        return (*basic, *(order for order in ("causal", "total", "semantic") if order in provided))

    async def group(
        self,
        name: str,
        *,
        order: str | None = None,
        safe: bool = False,
        own: bool = True,
        state: State | None = None,
        stalled: str = WAIT,
    ) -> Group:
        """Join a group; returns when this member is in its view. ``own=False``: this member does not hear itself.

        ``order`` defaults to the best that needs no agreement: fifo where the stack is reliable, none elsewhere.
        ``safe`` delivers a message only when every member of the group holds it; it implies total order. Every member
        of a group asks for the same. Asking again gives the same group.

        ``state`` has two methods, ``snapshot() -> bytes`` and ``restore(bytes)``. The first member's state is the
        group's; whoever joins is given it before its first message, so that it has applied every message once. Then
        this call returns when the state is restored. A member that was cut off from an ordered group is given it again
        when it returns, between two messages. The group's messages are read by one task.

        ``stalled`` says what becomes of members that do not read while this one wants to send: ``wait`` for them,
        ``exclude`` them from the group after a while, or, on a best-effort stack, ``drop`` what they have no room for.
        """
        self._check_open()
        order = order if order is not None else "total" if safe else self.orders[0]
        if order not in self.orders:
            raise BadInput(f"order={order!r} is not offered by the stack of this bus: use {' or '.join(self.orders)}")
        if safe and order != "total":
            raise BadInput(f"safe=True goes with order='total', not with {order!r}: leave out one of them")
        promises = f"{order} safe" if safe else order
        group = self._groups.get(name)
        if group is not None:
            if group._channel.own is not own:
                raise GroupMismatch(f"group {name!r} is open with own={not own}: close it first, or ask for the same")
            return group
        if state is not None and not (own and "views" in self._provided):
            raise BadInput("state= needs agreed views and a member that hears itself: stack='views', own=True")
        wish = checked_wish(stalled, self._provided)
        channel = self._dispatch.join(name, own=own, promises=promises, state=state, stalled=wish)
        group = self._groups[name] = Group(channel, self._dispatch, self._left, self._now, self._line)
        try:
            await group.joined(JOIN_S)
        except TimeoutError:
            raise Unreachable(f"no view of group {name!r} in {JOIN_S:g} s: look at bus.stats()") from None
        except GroupMismatch:
            await group.close()
            raise
        await group.restored()
        return group

    async def objects(
        self,
        name: str,
        interface: type | None = None,
        *,
        serve: object | None = None,
        one_by_one: bool = True,
        timeout: float | None = ANSWER_S,
        **promises: Any,
    ) -> Objects:
        """Join an object group: one object that stands for those which its members serve. See ``Group.proxy``.

        ``serve`` is this member's own, if it has one; its calls run one by one unless told otherwise. ``promises`` are
        those of ``group``, of which order="total" keeps objects alike that start alike.
        """
        group = await self.group(name, **promises)
        if serve is not None:
            group.serve(serve, one_by_one=one_by_one)
        return group.proxy(interface, timeout=timeout)

    async def replica(self, name: str, machine: M) -> Replica[M]:
        """Open a replicated state machine: every member that opens the name applies the same commands alike.

        ``machine`` has ``apply(index, command) -> bytes``, ``snapshot() -> bytes`` and ``restore(bytes)``. Returns when
        this member has the state; the first one's is empty. It lives in memory, in the primary, as long as one member
        with the state does. Asking again with the same machine gives the same replica.
        """
        self._check_open()
        if "total" not in self.orders:
            raise BadInput("a replica needs total order: connect with stack='views'")
        replica = self._replicas.get(name)
        if replica is None:
            log = SafeLog(f"replica/{checked_name(name, 'the replica')}", self._dispatch, new_number(self._random))
            replica = Replica(name, log, machine, new_number(self._random), self._left_replica)
            self._replicas[name] = replica
        elif replica.machine is not machine:
            raise GroupMismatch(f"replica {name!r} is open with another machine: close it first, or give the same")
        await replica.ready()
        return replica

    async def notifications(self, name: str, consumer: Any, **promises: Any) -> Notifications:
        """Join a notification bus: ``await n.notify(body)`` calls ``consumer.notified(message)`` at every member.

        ``promises`` are those of ``group``; the order is total where the stack has it. A consumer with ``get_cache``
        and ``put_cache`` is given the others' cache when it joins; see ``runtime.notifications`` for every hook.
        """
        from .notifications import Notifications, cache_of

        if "safe" not in promises:
            promises.setdefault("order", "total" if "total" in self.orders else None)
        if name in self._groups:
            raise GroupMismatch(f"group {name!r} is open here, and its messages have one reader: close it first")
        group = await self.group(name, state=cache_of(consumer), **promises)
        return Notifications(group, consumer)

    async def cache(self, name: str, *, entries_max: int = CACHE_ENTRIES_MAX) -> Cache:
        """Join a replicated cache; returns when this member has what the others have. The first member's
        ``entries_max`` holds for all."""
        from .cache import Cache, Consumer

        consumer = Consumer(self.me, entries_max)
        return Cache(await self.notifications(f"cache/{name}", consumer), consumer)

    @property
    def keeping(self) -> Keeping:
        """This member's keeper and its way to the others', for those who extend it."""
        if self._keeping is None:
            from .keeping import Keeping

            self._check_open()
            self._keeping = Keeping(self)
        return self._keeping

    @property
    def durable(self) -> Durable:
        """Durable topics: what ``publish(..., durable=True)`` and ``subscribe(..., durable=...)`` use."""
        return self.keeping.durable

    def log(self, topic: str) -> Log:
        """The log of a durable topic: ``await log.read(start, stop)``, ``await log.offsets()``."""
        return self.durable.log(topic)

    def mailbox(self, name: str, topics: str | Sequence[str] = ()) -> Mailbox:
        """What is kept for a subscriber that may be away: events of these topics, and what is posted to it. Use it with
        ``async with``; acknowledge each event when it is dealt with."""
        return self.durable.mailbox(name, topics)

    async def serve(self, address: str, secret: Secret | None = None) -> Doorman:
        """Speak for programs that are no members, at HOST:PORT; ``connect(serve=)`` does it."""
        from .doorman import Doorman

        self._check_open()
        doorman = Doorman(self, address, secret)
        await doorman.start()
        self._doors.append(doorman)
        return doorman

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
        """Found a new primary with the members that are here. For people who know that most of the others are gone for
        good: if they are not, there will be two."""
        self._stack.run(lambda: self._dispatch.tell_down(ForcePrimary()))

    def events(self) -> Events:
        """What happens to the bus from now on, to iterate over: ``pluribus.events`` has the types. It ends when the bus
        is closed. Who iterates too slowly gets ``Skipped`` in place of the oldest."""
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
        if self._topics is not None:
            self._topics.validate()
        for replica in self._replicas.values():
            replica.validate()

    async def close(self, timeout: float = DRAIN_S) -> None:
        """Leave, when everybody has what was sent; on a stack without reliability, when the engine has it.

        ``Undelivered`` says that ``timeout`` seconds were not enough, or that this member was cut off; the bus is
        closed all the same. With ``timeout=0`` nothing is waited for, and nothing raised.
        """
        if self._closing:
            return
        self._closing = True
        try:
            if timeout > 0 and self._topics is not None:
                self._topics.close_batches()
            reliable = self._stack.find(Reliable)
            if timeout > 0 and isinstance(reliable, Reliable):
                await drain(self._dispatch, reliable, timeout)
        finally:
            await self._leave()

    async def _leave(self) -> None:
        for doorman in self._doors:
            await doorman.close()
        if self._keeping is not None:
            await self._keeping.close()
        if self._topics is not None:
            await self._topics.close()
        for replica in list(self._replicas.values()):
            await replica.close()
        for group in list(self._groups.values()):
            await group.close()
        self._closed = True
        self._stack.stop()
        self._watchers.end()
        self._stop_watch()
        await self._engine.close()
        if self._trace is not None:
            self._trace.close()

    def abandon(self) -> None:
        """As a crash would: nothing is said to anybody. The simulator's way to kill a member."""
        self._closed = self._closing = True
        for doorman in self._doors:
            doorman.abandon()
        if self._keeping is not None:
            self._keeping.abandon()
        self._stack.abandon()
        self._watchers.end()
        for group in self._groups.values():
            group.abandon()
        if self._topics is not None:
            self._topics.abandon()
        for replica in self._replicas.values():
            replica.abandon()

    def _event(self, event: Event) -> None:
        if isinstance(event, Inquired):
            told = report(self.name, self._now(), self._stack.stats())
            self._dispatch.tell_down(Inform(event.member, event.question, told))
        else:
            self._notices.take(event)

    def _receive(self, datagrams: list[Datagram]) -> None:
        line = self._line
        line.receiving = self._eager
        try:
            self._stack.receive(datagrams)
            line.run()
        finally:
            line.receiving = False

    def _room(self) -> None:
        for channel in self._dispatch.channels.values():
            channel.on_room()

    def _left_replica(self, replica: Replica[Any]) -> None:
        self._replicas.pop(replica.name, None)

    def _left(self, group: Group) -> None:
        self._groups.pop(group.name, None)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the bus is closed: connect again")

    async def __aenter__(self) -> Bus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closed_after(error)

    async def _closed_after(self, error: BaseException | None) -> None:
        """Leaving because of an error: that one counts, whatever was not delivered."""
        try:
            await self.close()
        except Undelivered as lost:
            if error is None:
                raise
            error.add_note(str(lost))


class connect:
    """Join the bus that a URL names.

    The URL defaults to ``$PLURIBUS_URL``, then to multicast on the loopback interface, which leaves the machine alone.
    ``name`` is how others see this member. ``stack`` is ``"views"`` (agreed views and every order), ``"best-effort"``,
    ``"adhoc"`` (answers after what they answer, without agreed views), ``"crowd"`` (gossip, for very many members), or
    a specification of your own, bottom first; every member needs the same.
    ``trace`` is a file that will hold every stimulus of the run, for ``pluribus replay``. ``secret`` is what members of
    the bus share, bytes or text or the path of a file; by default ``$PLURIBUS_SECRET``, if that is set. With a secret
    every frame is sealed, and a member with another one, or without, is refused.

    ``store`` is a file, or the URL of a PostgreSQL server, that keeps durable topics: this member is a keeper then. The
    first keeper of a bus begins the log; others follow it, and are counted among its voters if ``votes`` is true.
    ``serve`` is an address, HOST:PORT, at which this member speaks for programs that are no members. Such a program
    connects to ``client://HOST:PORT/BUS``; what it gets publishes, subscribes and reads logs as a bus does.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        stack: str = "views",
        trace: str | os.PathLike[str] | None = None,
        secret: Given | None = None,
        store: str | os.PathLike[str] | None = None,
        votes: bool = False,
        serve: str | None = None,
    ) -> None:
        self._url = url if url is not None else os.environ.get("PLURIBUS_URL", DEFAULT_URL)
        self._name = name
        self._stack = STACKS.get(stack, stack)
        self._trace = trace
        self._secret = secret_from(secret)
        self._store = store
        self._votes = votes
        self._serve = serve
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
        name = checked_name(self._name if self._name is not None else f"process-{os.getpid()}", "the member")
        loop = asyncio.get_running_loop()
        ports = Ports(clock=LoopClock(loop), random=real_random(), engine=engine_for(url))
        trace = None if self._trace is None else TraceFile(self._trace)
        stack = self._stack if self._secret is None else secured(self._stack)
        bus = await opened(url, name, ports, stack, trace, self._secret)
        bus._eager = True
        bus._wall = time
        bus._stop_watch = watch_loop(loop)
        try:
            if self._store is not None:
                await bus.keeping.keep(self._store, votes=self._votes)
            if self._serve is not None:
                await bus.serve(self._serve, self._secret)
        except BaseException:
            await bus.close(timeout=0)
            raise
        return bus

    async def _client(self, url: BusUrl) -> Any:
        """No member, but with the face of one."""
        from .client import ClientBus

        member = {"store": self._store, "serve": self._serve, "trace": self._trace}
        if any(value is not None for value in member.values()):
            given = ", ".join(f"{name}=" for name, value in member.items() if value is not None)
            raise BadInput(f"a client has no {given}: that is for members; connect with another URL")
        bus = ClientBus(url, checked_name(self._name or f"process-{os.getpid()}", "the client"), self._secret)
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


def new_number(random: Random) -> int:
    """One that nobody else has drawn, for all that is likely."""
    return random.getrandbits(62) + 1


L = TypeVar("L", bound=Layer)


def _only(layers: list[Layer], kind: type[L]) -> L:
    found = [layer for layer in layers if isinstance(layer, kind)]
    if len(found) != 1:
        raise BadStack(f"a bus needs exactly one layer {kind.name!r}: {BEST_EFFORT!r} is an example")
    return found[0]
