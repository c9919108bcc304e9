"""The bus without ``await``, for scripts, notebooks and Spark executors: what ``pluribus.sync`` offers.

::

    with pluribus.sync.connect("multicast://demo") as bus:
        g = bus.group("alarms")
        g.send_many([b"fire", b"flood"])
        for m in g: ...

The members live on a loop in a background thread (``background.py``); each object here is a *face* of one there, with
the same methods. A call crosses to that thread and waits, which costs some hundred microseconds; so reading fetches all
that is there in one crossing, and ``send_many`` sends a list in one. Faces may be shared by threads: messages of a
group are then shared out among those who read it, each message to one of them.

A face has the methods of its object, each written down with the same parameters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ...core.errors import Uncertain, Undelivered
from ...core.events import Event
from ...core.ids import MemberId, MessageId
from ...core.limits import CACHE_ENTRIES_MAX, DRAIN_S, SLOT_QUEUE_MESSAGES
from ...core.ports import Store
from ...core.url import BusUrl
from ...group.asking import Answers, Replies
from ...group.log import StateMachine
from ...group.stalled import WAIT
from ...group.state import State
from .. import bus as real_bus
from ..group.asking import ANSWER_S
from ..group.secret import Given
from ..loop.background import Background, background
from ..styles.conversations.face import BYTES_MAX, MESSAGES_MAX
from ..styles.queues.face import OPEN_S as QUEUE_OPEN_S
from ..styles.slots.face import ENROL_S
from ..styles.spaces.face import OPEN_S
from ..styles.style import Style
from ..styles.tables.face import ROWS_MAX
from ..styles.tables.face import TIMEOUT_S as SQL_S
from ..styles.transactions.face import TIMEOUT_S as TRANSACTION_S
from ..styles.transformations.face import STEP_S
from .face import OwnStyle, one_by_one, real_of
from .groups import Cache, DurableReplica, Group, Notifications, Objects, Relayed, Replica
from .topics import TopicsSync

if TYPE_CHECKING:  # loaded when first used
    from ...core.secret import Secret
    from ...filters import Filter
    from ...slots.carry import Carry
    from ...tables.result import SqlTable
    from ..clients.sync import SyncDoorman
    from ..keepers.sync import SyncKeepers
    from ..styles.access.sync import SyncAccess
    from ..styles.conversations.sync import SyncConversations, SyncRoom
    from ..styles.objects.sync import SyncCommunicator, SyncDirectory, SyncHandle, SyncNetwork, SyncQueue, SyncShadow
    from ..styles.queues.sync import SyncMessageQueue
    from ..styles.slots.hosts import GivenPlan
    from ..styles.slots.sync import SyncCommunicationsManager, SyncEnrolledSlot, SyncSlotsHost
    from ..styles.spaces.spaces import SpaceInfo
    from ..styles.spaces.sync import SyncSpace
    from ..styles.transactions.sync import SyncTransaction
    from ..styles.transactions.transactions import TransactionInfo
    from ..styles.transformations.sync import SyncTransformer

M = TypeVar("M", bound=StateMachine)


class Bus(TopicsSync):
    """One member of one bus; ``connect`` makes it. See ``pluribus.Bus``."""

    _real: real_bus.Bus

    def __init__(self, real: real_bus.Bus, thread: Background) -> None:
        super().__init__(real, thread)
        self._groups: dict[str, Group] = {}
        self._forget_goodbye = thread.at_the_end(real.close)

    @property
    def me(self) -> MemberId:
        return self._real.me

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def url(self) -> BusUrl:
        return self._real.url

    @property
    def orders(self) -> tuple[str, ...]:
        """The orders that the stack of this bus offers, the default first."""
        return self._real.orders

    @property
    def primary(self) -> bool:
        """Whether this member is in the primary view, where total and safe order go on."""
        return self._thread.ask(lambda: self._real.primary)

    def force_primary(self) -> None:
        """Found a new primary with the members that are here. See ``pluribus.Bus.force_primary``."""
        self._thread.ask(self._real.force_primary)

    @property
    def members(self) -> dict[MemberId, str]:
        """Everybody on the bus now, by name; this member included."""
        return self._thread.ask(lambda: self._real.members)

    def group(
        self,
        name: str,
        *,
        order: str | None = None,
        safe: bool = False,
        own: bool = True,
        state: State | None = None,
        stalled: str = WAIT,
        open: bool = False,
        key: Given | None = None,
    ) -> Group:
        """Join a group; asking again gives the same one. See ``pluribus.Bus.group``."""
        promises: dict[str, Any] = {"order": order, "safe": safe, "own": own, "state": state, "stalled": stalled}
        real = self._thread.call(self._real.group, name, open=open, key=key, **promises)
        face = self._groups.get(name)
        if face is None or face._real is not real:
            face = self._groups[name] = Group(real, self._thread)
        return face

    @property
    def access(self) -> SyncAccess:
        """The access list of the bus. See ``pluribus.Bus.access``."""
        from ..styles.access.sync import SyncAccess

        return SyncAccess(self._thread.ask(lambda: self._real.access), self._thread)

    def style(self, kind: type[Style]) -> OwnStyle:
        """What a style has open on this bus. See ``pluribus.Bus.style``."""
        return OwnStyle(self._thread.ask(self._real.style, kind), self._thread)

    def events(self) -> Iterator[Event]:
        """What happens to the bus from now on; it ends when the bus is closed. See ``pluribus.Bus.events``."""
        return one_by_one(self._thread, self._thread.ask(self._real.events))

    def on_event(self, listener: Callable[[Event], object]) -> Callable[[], None]:
        """Call ``listener`` with every event, in the thread of the bus, which it must not keep; the returned function
        ends that."""
        stop = self._thread.ask(self._real.on_event, listener)
        return lambda: self._thread.ask(stop)

    def objects(
        self,
        name: str,
        interface: type | None = None,
        *,
        serve: object | None = None,
        one_by_one: bool = True,
        timeout: float | None = ANSWER_S,
        order: str | None = None,
        safe: bool = False,
        own: bool = True,
        state: State | None = None,
        stalled: str = WAIT,
        open: bool = False,
        key: Given | None = None,
    ) -> Objects:
        """Join an object group. See ``pluribus.Bus.objects``."""
        options: dict[str, Any] = {"serve": serve, "one_by_one": one_by_one, "timeout": timeout}
        options |= {"order": order, "safe": safe, "own": own, "state": state, "stalled": stalled}
        real = self._thread.call(self._real.objects, name, interface, open=open, key=key, **options)
        return Objects(real, self._thread)

    def notifications(
        self,
        name: str,
        consumer: Any,
        *,
        order: str | None = None,
        safe: bool = False,
        own: bool = True,
        stalled: str = WAIT,
        open: bool = False,
        key: Given | None = None,
    ) -> Notifications:
        """Join a notification bus. See ``pluribus.Bus.notifications``; plain consumers are called in threads."""
        options: dict[str, Any] = {"order": order, "safe": safe, "own": own, "stalled": stalled}
        real = self._thread.call(self._real.notifications, name, consumer, open=open, key=key, **options)
        return Notifications(real, self._thread)

    def send(self, name: str, body: Any, *, timeout: float | None = None) -> MessageId:
        """Send to a group, also from outside of it. See ``pluribus.Bus.send``."""
        return self._thread.call(self._real.send, name, body, timeout=timeout)

    def ask(self, name: str, body: Any, *, replies: Replies = "all", timeout: float | None = ANSWER_S) -> Answers:
        """Ask a group, also from outside of it. See ``pluribus.Bus.ask``."""
        return self._thread.call(self._real.ask, name, body, replies=replies, timeout=timeout)

    def cache(self, name: str, *, entries_max: int = CACHE_ENTRIES_MAX) -> Cache:
        """Join a replicated cache. See ``pluribus.Bus.cache``."""
        return Cache(self._thread.call(self._real.cache, name, entries_max=entries_max), self._thread)

    def conversation(
        self,
        name: str,
        *,
        description: str = "",
        store: str | os.PathLike[str] | None = None,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
        identities_only: bool = False,
    ) -> SyncRoom:
        """Take part in a conversation. See ``pluribus.Bus.conversation``."""
        from ..styles.conversations.sync import SyncRoom

        options: dict[str, Any] = {"description": description, "store": store, "messages_max": messages_max}
        options |= {"bytes_max": bytes_max, "identities_only": identities_only}
        return SyncRoom(self._thread.call(self._real.conversation, name, **options), self._thread)

    def conversations(self, *, store: str | os.PathLike[str] | None = None) -> SyncConversations:
        """All conversations that this member knows of. See ``pluribus.Bus.conversations``."""
        from ..styles.conversations.sync import SyncConversations

        return SyncConversations(self._thread.call(self._real.conversations, store=store), self._thread)

    def queue(
        self,
        name: str,
        *,
        durable: bool = True,
        create: bool = True,
        messages_max: int | None = None,
        bytes_max: int | None = None,
        full: str | None = None,
        tries: int | None = None,
        backoff: tuple[float, float] | None = None,
        window: float | None = None,
        lease: float | None = None,
        dead_max: int | None = None,
        dead_expired: bool | None = None,
        transform: str | None = None,
        timeout: float | None = QUEUE_OPEN_S,
    ) -> SyncMessageQueue:
        """Open a message queue. See ``pluribus.Bus.queue``."""
        from ..styles.queues.sync import SyncMessageQueue

        options: dict[str, Any] = {"durable": durable, "create": create}
        options |= {"messages_max": messages_max, "bytes_max": bytes_max}
        options |= {"full": full, "tries": tries, "backoff": backoff, "window": window, "lease": lease}
        options |= {"dead_max": dead_max, "dead_expired": dead_expired, "transform": transform, "timeout": timeout}
        return SyncMessageQueue(self._thread.call(self._real.queue, name, **options), self._thread)

    def queues(self, *, timeout: float | None = QUEUE_OPEN_S) -> list[str]:
        """The names of the durable queues, sorted."""
        return self._thread.call(self._real.queues, timeout=timeout)

    @overload
    def replica(self, name: str, machine: M) -> Replica[M]: ...

    @overload
    def replica(
        self,
        name: str,
        machine: str | type[M],
        *,
        durable: Literal[True],
        version: int = 1,
        timeout: float | None = 15.0,
    ) -> DurableReplica[M]: ...

    def replica(
        self, name: str, machine: Any, *, durable: bool = False, version: int = 1, timeout: float | None = 15.0
    ) -> Any:
        """Open a replicated state machine. See ``pluribus.Bus.replica``; the machine runs on the background loop, or,
        if it is durable, at the keepers."""
        opening: Any = self._real.replica
        real = self._thread.call(opening, name, machine, durable=durable, version=version, timeout=timeout)
        return DurableReplica(real, self._thread) if durable else Replica(real, self._thread)

    def enroll(
        self,
        slot: str,
        *,
        on: str | None = None,
        name: str | None = None,
        key: str | None = None,
        carry: Carry | bytes | None = None,
        capacity: int = SLOT_QUEUE_MESSAGES,
        trusts: bool = False,
        timeout: float = ENROL_S,
    ) -> SyncEnrolledSlot:
        """Occupy a slot of a software bus. See ``pluribus.Bus.enroll``; use it with ``with``, or ``drop_out`` of it."""
        from ..styles.slots.sync import SyncEnrolledSlot

        given: dict[str, Any] = {"on": on, "name": name, "key": key, "carry": carry, "capacity": capacity}
        real = self._thread.call(self._real.enroll, slot, trusts=trusts, timeout=timeout, **given)
        return SyncEnrolledSlot(real, self._thread)

    def slots(
        self,
        plan: GivenPlan,
        *,
        by: str = "router",
        store: str | os.PathLike[str] | Store | None = None,
        answers: str = "asker",
        invoke: bool = True,
    ) -> SyncSlotsHost:
        """Start a software bus. See ``pluribus.Bus.slots``."""
        from ..styles.slots.sync import SyncSlotsHost

        given: dict[str, Any] = {"by": by, "store": store, "answers": answers, "invoke": invoke}
        return SyncSlotsHost(self._thread.call(self._real.slots, plan, **given), self._thread)

    def communications(self) -> SyncCommunicationsManager:
        """A communications manager. See ``pluribus.Bus.communications``."""
        from ..styles.slots.sync import SyncCommunicationsManager

        return SyncCommunicationsManager(self._thread.call(self._real.communications), self._thread)

    @property
    def keepers(self) -> SyncKeepers:
        """The keepers of the bus. See ``pluribus.Bus.keepers``."""
        from ..keepers.sync import SyncKeepers

        return SyncKeepers(self._thread.ask(lambda: self._real.keepers), self._thread)

    def relay(self, name: str) -> Relayed:
        """A way to send to an open group without joining it. See ``pluribus.Bus.relay``."""
        return Relayed(self._thread.ask(self._real.relay, name), self._thread)

    def serve(self, address: str, secret: Secret | None = None) -> SyncDoorman:
        """Speak for programs that are no members, at HOST:PORT; ``connect(serve=)`` does it."""
        from ..clients.sync import SyncDoorman

        return SyncDoorman(self._thread.call(self._real.serve, address, secret), self._thread)

    @property
    def doors(self) -> list[SyncDoorman]:
        """Where clients are served; each has its ``address``."""
        from ..clients.sync import SyncDoorman

        return [SyncDoorman(door, self._thread) for door in self._thread.ask(lambda: self._real.doors)]

    @property
    def directory(self) -> SyncDirectory:
        """The objects of this process, and a way to find those of others. See ``pluribus.Bus.directory``."""
        from ..styles.objects.sync import SyncDirectory

        return SyncDirectory(self._thread.ask(lambda: self._real.directory), self._thread)

    @property
    def communicator(self) -> SyncCommunicator:
        """Sends messages to objects, and awaits answers. See ``pluribus.Bus.communicator``."""
        from ..styles.objects.sync import SyncCommunicator

        return SyncCommunicator(self._thread.ask(lambda: self._real.communicator), self._thread)

    def transaction(self, *, timeout: float = TRANSACTION_S, join: int = 0) -> SyncTransaction:
        """``with bus.transaction() as tx:``. See ``pluribus.Bus.transaction``."""
        from ..styles.transactions.sync import SyncTransaction

        real = self._thread.ask(self._real.transaction, timeout=timeout, join=join)
        return SyncTransaction(real, self._thread)

    def transformer(
        self,
        source: str | SyncMessageQueue,
        target: str | SyncMessageQueue,
        chain: str,
        *,
        where: str | Filter | None = None,
        timeout: float = STEP_S,
    ) -> SyncTransformer:
        """``with bus.transformer("incoming", "orders", "csv > json"):``. See ``pluribus.Bus.transformer``."""
        from ..styles.transformations.sync import SyncTransformer

        ends = (real_of(source), real_of(target))
        real = self._thread.ask(self._real.transformer, *ends, chain, where=where, timeout=timeout)
        return SyncTransformer(real, self._thread)

    def transactions(self, *, prepared: bool = False) -> list[TransactionInfo]:
        """Transactions that several processes act in, or that are prepared. See ``pluribus.Bus.transactions``."""
        return self._thread.call(self._real.transactions, prepared=prepared)

    def transaction_state(self, id: int) -> str:
        """What became of a transaction. See ``pluribus.Bus.transaction_state``."""
        return self._thread.call(self._real.transaction_state, id)

    def resolve_transaction(self, id: int, *, commit: bool) -> None:
        """Decide about a prepared transaction. See ``pluribus.Bus.resolve_transaction``."""
        self._thread.call(self._real.resolve_transaction, id, commit=commit)

    def sql(
        self, statement: str, *, rows_max: int = ROWS_MAX, timeout: float = SQL_S, push_down: bool = True
    ) -> SqlTable:
        """Any SELECT of SQLite over queues and durable topics. See ``pluribus.Bus.sql``."""
        options: dict[str, Any] = {"rows_max": rows_max, "timeout": timeout, "push_down": push_down}
        return self._thread.call(self._real.sql, statement, **options)

    @property
    def queued_calls(self) -> SyncQueue:
        """Calls that wait on disk until their objects are there. See ``pluribus.Bus.queued_calls``."""
        from ..styles.objects.sync import SyncQueue

        return SyncQueue(self._thread.ask(lambda: self._real.queued_calls), self._thread)

    def space(
        self,
        name: str,
        *,
        kind: str = "replicated",
        durable: bool = False,
        replica: bool = True,
        copies: int = 1,
        key: int = 0,
        timeout: float | None = OPEN_S,
    ) -> SyncSpace:
        """Open a tuple space. See ``pluribus.Bus.space``."""
        from ..styles.spaces.sync import SyncSpace

        options: dict[str, Any] = {"kind": kind, "durable": durable, "replica": replica}
        options |= {"copies": copies, "key": key, "timeout": timeout}
        return SyncSpace(self._thread.call(self._real.space, name, **options), self._thread)

    def spaces(self, *, timeout: float | None = OPEN_S) -> list[SpaceInfo]:
        """The spaces that were opened on this bus, by name."""
        return self._thread.call(self._real.spaces, timeout=timeout)

    def bridge(self, other: Bus, alias: str) -> SyncShadow:
        """Add an object to this bus that stands for the objects of an alias on another one. See
        ``pluribus.Bus.bridge``."""
        from ..styles.objects.sync import SyncShadow

        return SyncShadow(self._thread.call(self._real.bridge, other._real, alias), self._thread)

    def virtual_network(self, name: str, *, mode: str = "unicast") -> SyncNetwork:
        """A group of objects that this program makes of shadows. See ``pluribus.Bus.virtual_network``."""
        from ..styles.objects.sync import SyncNetwork

        return SyncNetwork(self._thread.ask(self._real.virtual_network, name, mode=mode), self._thread)

    def omni(self, interface: type, *, results: str = "none", timeout: float | None = ANSWER_S) -> SyncHandle:
        """A handle of every object with an interface. See ``pluribus.Bus.omni``."""
        from ..styles.objects.sync import SyncHandle

        return SyncHandle(self._thread.ask(self._real.omni, interface, results=results, timeout=timeout), self._thread)

    def group_handle(
        self, interface: type, group: str, *, results: str = "none", timeout: float | None = ANSWER_S
    ) -> SyncHandle:
        """A handle of every object with an interface and an alias. See ``pluribus.Bus.group_handle``."""
        from ..styles.objects.sync import SyncHandle

        options: dict[str, Any] = {"results": results, "timeout": timeout}
        return SyncHandle(self._thread.ask(self._real.group_handle, interface, group, **options), self._thread)

    def uni(self, interface: type, shadow: SyncShadow, *, timeout: float | None = ANSWER_S) -> SyncHandle:
        """A handle of one object. See ``pluribus.Bus.uni``."""
        from ..styles.objects.sync import SyncHandle

        return SyncHandle(self._thread.ask(self._real.uni, interface, shadow._real, timeout=timeout), self._thread)

    def stats(self) -> dict[str, dict[str, Any]]:
        return self._thread.ask(self._real.stats)

    def describe(self) -> str:
        """The stack, top to bottom, a line a layer."""
        return self._thread.ask(self._real.describe)

    def validate(self) -> None:
        """Assert the invariants of every layer; for tests."""
        self._thread.ask(self._real.validate)

    def close(self, timeout: float = DRAIN_S) -> None:
        """Leave, when everybody has what was sent. See ``pluribus.Bus.close``."""
        try:
            if not self.closed:
                self._thread.call(self._real.close, timeout)
        finally:
            self._forget_goodbye()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaving because of an error: that one counts, whatever was not delivered."""
        try:
            self.close()
        except (Undelivered, Uncertain) as lost:
            if error is None:
                raise
            error.add_note(str(lost))


def connect(
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
) -> Bus:
    """Join the bus that a URL names, and wait until that is done. Use it with ``with``, or close the bus yourself;
    what is still open when the process ends says goodbye then.

    The options are those of ``pluribus.connect``. Inside a running asyncio loop it raises ``BadInput``.
    """
    thread = background()
    options: dict[str, Any] = {"stack": stack, "spread": spread, "trace": trace, "secret": secret, "store": store}
    options |= {"votes": votes, "voters": voters, "fresh": fresh, "machines": machines, "founders": founders}
    options |= {"serve": serve, "user": user, "password": password, "token": token}
    options["name"] = name if name is not None else f"process-{os.getpid()}"

    async def connecting() -> real_bus.Bus:
        return await real_bus.connect(url, **options)

    return Bus(thread.call(connecting), thread)
