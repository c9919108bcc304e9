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

What a face does not define itself it takes from the real object, so that whatever the asynchronous bus learns can be
called here too.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.errors import Closed, Uncertain, Undelivered
from ...core.events import Event
from ...core.frame import Message
from ...core.ids import MemberId, MessageId
from ...core.limits import CACHE_ENTRIES_MAX, SLOT_QUEUE_MESSAGES
from ...core.view import View
from ...group.asking import Answers, Replies
from ...group.cache import Key
from ...group.stalled import WAIT
from ...group.state import State
from .. import bus as real_bus
from ..group import cache as real_cache
from ..group import group as real_group
from ..group import replica as real_replica
from ..group.asking import ANSWER_S
from ..group.secret import Given
from ..loop.background import Background, background
from ..styles.queues.face import OPEN_S as QUEUE_OPEN_S
from ..styles.slots.face import ENROL_S
from ..styles.spaces.face import OPEN_S
from ..styles.style import Style
from .face import Face, one_by_one
from .topics import TopicsSync

T = TypeVar("T")

if TYPE_CHECKING:  # loaded when first used
    from ..styles.objects.sync import SyncCommunicator, SyncDirectory, SyncHandle, SyncNetwork, SyncQueue, SyncShadow
    from ..styles.queues.sync import SyncMessageQueue
    from ..styles.spaces.sync import SyncSpace
    from ..styles.transactions.sync import SyncTransaction


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
    def access(self) -> Face:
        """The access list of the bus. See ``pluribus.Bus.access``."""
        return Face(self._thread.ask(lambda: self._real.access), self._thread)

    def style(self, kind: type[Style]) -> Face:
        """What a style has open on this bus. See ``pluribus.Bus.style``."""
        return Face(self._thread.ask(self._real.style, kind), self._thread)

    def events(self) -> Iterator[Event]:
        """What happens to the bus from now on; it ends when the bus is closed. See ``pluribus.Bus.events``."""
        return one_by_one(self._thread, self._thread.ask(self._real.events))

    def on_event(self, listener: Callable[[Event], object]) -> Callable[[], None]:
        """Call ``listener`` with every event, in the thread of the bus, which it must not keep; the returned function
        ends that."""
        stop = self._thread.ask(self._real.on_event, listener)
        return lambda: self._thread.ask(stop)

    def objects(self, name: str, interface: type | None = None, **options: Any) -> Objects:
        """Join an object group; ``options`` are those of ``pluribus.Bus.objects``."""
        return Objects(self._thread.call(self._real.objects, name, interface, **options), self._thread)

    def notifications(self, name: str, consumer: Any, **promises: Any) -> Face:
        """Join a notification bus. See ``pluribus.Bus.notifications``; plain consumers are called in threads."""
        return Face(self._thread.call(self._real.notifications, name, consumer, **promises), self._thread)

    def send(self, name: str, body: Any, *, timeout: float | None = None) -> MessageId:
        """Send to a group, also from outside of it. See ``pluribus.Bus.send``."""
        return self._thread.call(self._real.send, name, body, timeout=timeout)

    def ask(self, name: str, body: Any, *, replies: Replies = "all", timeout: float | None = ANSWER_S) -> Answers:
        """Ask a group, also from outside of it. See ``pluribus.Bus.ask``."""
        return self._thread.call(self._real.ask, name, body, replies=replies, timeout=timeout)

    def cache(self, name: str, *, entries_max: int = CACHE_ENTRIES_MAX) -> Cache:
        """Join a replicated cache. See ``pluribus.Bus.cache``."""
        return Cache(self._thread.call(self._real.cache, name, entries_max=entries_max), self._thread)

    def conversation(self, name: str, **options: Any) -> Room:
        """Be in a conversation; ``options`` are those of ``pluribus.Bus.conversation``."""
        return Room(self._thread.call(self._real.conversation, name, **options), self._thread)

    def conversations(self, **options: Any) -> Conversations:
        """All conversations that this member knows of."""
        return Conversations(self._thread.call(self._real.conversations, **options), self._thread)

    def queue(
        self,
        name: str,
        *,
        durable: bool = True,
        messages_max: int | None = None,
        bytes_max: int | None = None,
        full: str | None = None,
        tries: int | None = None,
        backoff: tuple[float, float] | None = None,
        window: float | None = None,
        lease: float | None = None,
        dead_max: int | None = None,
        dead_expired: bool | None = None,
        timeout: float | None = QUEUE_OPEN_S,
    ) -> SyncMessageQueue:
        """Open a message queue. See ``pluribus.Bus.queue``."""
        from ..styles.queues.sync import SyncMessageQueue

        options: dict[str, Any] = {"durable": durable, "messages_max": messages_max, "bytes_max": bytes_max}
        options |= {"full": full, "tries": tries, "backoff": backoff, "window": window, "lease": lease}
        options |= {"dead_max": dead_max, "dead_expired": dead_expired, "timeout": timeout}
        return SyncMessageQueue(self._thread.call(self._real.queue, name, **options), self._thread)

    def replica(
        self, name: str, machine: Any, *, durable: bool = False, version: int = 1, timeout: float | None = 15.0
    ) -> Replica:
        """Open a replicated state machine. See ``pluribus.Bus.replica``; the machine runs on the background loop, or,
        if it is durable, at the keepers."""
        opening: Any = self._real.replica
        real = self._thread.call(opening, name, machine, durable=durable, version=version, timeout=timeout)
        return Replica(real, self._thread)

    def enroll(
        self,
        slot: str,
        *,
        on: str | None = None,
        name: str | None = None,
        key: str | None = None,
        carry: Any = None,
        capacity: int = SLOT_QUEUE_MESSAGES,
        trusts: bool = False,
        timeout: float = ENROL_S,
    ) -> EnrolledSlot:
        """Occupy a slot of a software bus. See ``pluribus.Bus.enroll``; use it with ``with``, or ``drop_out`` of it."""
        given: dict[str, Any] = {"on": on, "name": name, "key": key, "carry": carry, "capacity": capacity}
        real = self._thread.call(self._real.enroll, slot, trusts=trusts, timeout=timeout, **given)
        return EnrolledSlot(real, self._thread)

    def slots(
        self, plan: Any, *, by: str = "router", store: Any = None, answers: str = "asker", invoke: bool = True
    ) -> Face:
        """Start a software bus. See ``pluribus.Bus.slots``."""
        given: dict[str, Any] = {"by": by, "store": store, "answers": answers, "invoke": invoke}
        return Face(self._thread.call(self._real.slots, plan, **given), self._thread)

    def communications(self) -> Face:
        """A communications manager. See ``pluribus.Bus.communications``."""
        return Face(self._thread.call(self._real.communications), self._thread)

    @property
    def keepers(self) -> Face:
        """The keepers of the bus. See ``pluribus.Bus.keepers``."""
        return Face(self._thread.ask(lambda: self._real.keepers), self._thread)

    def relay(self, name: str) -> Face:
        """A way to send to an open group without joining it: ``send`` and ``drain``, as ``pluribus.Bus.relay`` has."""
        return Face(self._thread.ask(self._real.relay, name), self._thread)

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

    def transaction(self, *, timeout: float = 60.0, join: int = 0) -> SyncTransaction:
        """``with bus.transaction() as tx:``. See ``pluribus.Bus.transaction``."""
        from ..styles.transactions.sync import SyncTransaction

        real = self._thread.ask(self._real.transaction, timeout=timeout, join=join)
        return SyncTransaction(real, self._thread)

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

    def bridge(self, other: Bus, alias: str) -> SyncShadow:
        """Add an object that stands for the objects of an alias on another bus. See ``pluribus.Bus.bridge``."""
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

    def close(self) -> None:
        try:
            super().close()
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


class Group(Face):
    """A group of a synchronous bus: send, iterate, look at the view. See ``pluribus.Group``."""

    _real: real_group.Group

    def __init__(self, real: real_group.Group, thread: Background) -> None:
        super().__init__(real, thread)
        self._fetched: deque[Message] = deque()
        self._turn = threading.Condition()
        self._fetching = False
        real._channel.answer = lambda question, body: thread.call(real.reply, question, body)

    @property
    def me(self) -> MemberId:
        return self._real.me

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def view(self) -> View:
        """The members now. It is read without crossing: a view never changes, it is replaced."""
        return self._real.view

    def send(self, body: Any, **options: Any) -> MessageId:
        """Send one message; ``options`` are those of ``pluribus.Group.send``. ``send_many`` is much faster for many."""
        return self._thread.call(self._real.send, body, **options)

    def send_many(self, bodies: Iterable[Any], **options: Any) -> list[MessageId]:
        """Send all of these, in order, in one crossing."""
        return self._thread.call(self._real.send_many, list(bodies), **options)

    def receive(self, timeout: float | None = None) -> Message:
        """The next message; ``TimeoutError`` after ``timeout`` seconds, ``Closed`` when there will be none."""
        self._thread.check()
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            try:
                return self._fetched.popleft()
            except IndexError:
                self._fetch(None if deadline is None else max(deadline - monotonic(), 0.0))

    def receive_many(self, most: int = real_group.RECEIVE_MANY, timeout: float | None = None) -> list[Message]:
        """At least one message, and as many as are there, up to ``most``."""
        messages = [self.receive(timeout)]
        while self._fetched and len(messages) < most:
            messages.append(self._fetched.popleft())
        return messages

    def __iter__(self) -> Iterator[Message]:
        """Messages until the group is closed; leaving the iteration loses none."""
        self._thread.check()
        fetched = self._fetched
        while True:
            while fetched:
                try:
                    message = fetched.popleft()
                except IndexError:  # another thread was quicker
                    break
                yield message
            try:
                self._fetch(None)
            except Closed:
                return

    def handle(self, handler: Callable[[Message], Any]) -> None:
        """Call ``handler`` with every message, one after another, until the group is closed. A question is answered
        with what it returns or raises, unless it replied itself."""
        for message in self:
            if message.asks:
                self._answer(handler, message)
            else:
                handler(message)

    def _answer(self, handler: Callable[[Message], Any], message: Message) -> None:
        """The handler works in the caller's thread; what came of it is told on the loop."""
        result, failure = None, None
        try:
            result = handler(message)
        except Exception as error:  # noqa: BLE001 - it is the asker's to handle
            failure = error

        async def handled() -> Any:
            if failure is not None:
                raise failure
            return result

        async def told() -> None:
            await self._real._asker.answer_with(message, handled())

        self._thread.call(told)

    def proxy(self, interface: type | None = None, **options: Any) -> Objects:
        """An object that stands for the objects of all members; see ``pluribus.Group.proxy``."""
        return Objects(self._real.proxy(interface, **options), self._thread)

    def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with at least so many members."""
        return self._thread.call(self._real.wait_for, members, timeout)

    def views(self) -> Iterator[View]:
        """The view now, and every later one; one that was replaced before it could be shown is skipped."""
        return one_by_one(self._thread, self._real.views())

    def _fetch(self, timeout: float | None) -> None:
        """Have at least one message fetched, by this thread or by another that is at it already."""
        with self._turn:
            if self._fetched:  # by another thread, since we looked
                return
            if self._fetching:
                if not self._turn.wait(timeout):
                    raise TimeoutError
                return
            self._fetching = True
        try:
            self._thread.call(self._take, timeout)
        finally:
            with self._turn:
                self._fetching = False
                self._turn.notify_all()

    async def _take(self, timeout: float | None) -> None:
        """On the loop: what is taken from the real group is in ``_fetched`` at once, so an interrupted caller loses
        nothing."""
        self._fetched.extend(await self._real.receive_many(timeout=timeout))


class EnrolledSlot(Face):
    """A slot of a synchronous bus, with ``send``, ``ask``, ``move`` and ``drop_out``. See ``pluribus.Bus.enroll``."""

    def port(self, name: str) -> SlotPort:
        """A port that receives or answers: iterate it, or ``receive``."""
        return SlotPort(self._thread.ask(self._real.port, name), self._thread)

    def close(self) -> None:
        """Leave the slot; its routes stay."""
        if not self.closed and self._real.state == "enrolled":
            self._thread.call(self._real.close)


class SlotPort(Face):
    """Messages have ``acknowledge``, ``withhold`` and ``reply``; each is acknowledged when the next is asked for."""

    def receive(self, timeout: float | None = None) -> Face:
        """The next message; ``TimeoutError`` after ``timeout`` seconds."""
        return Face(self._thread.call(self._real.receive, timeout), self._thread)

    def __iter__(self) -> Iterator[Face]:
        return (Face(message, self._thread) for message in one_by_one(self._thread, aiter(self._real)))


class Cache(Face):
    """A replicated cache of a synchronous bus. See ``pluribus.runtime.group.cache.Cache``."""

    _real: real_cache.Cache

    def get(self, key: Key, default: Any = None) -> Any:
        """What this member has now. It is read without crossing: an entry is replaced, never changed."""
        return self._real.get(key, default)

    def __getitem__(self, key: Key) -> Any:
        return self._real[key]

    def __contains__(self, key: Key) -> bool:
        return key in self._real

    def __len__(self) -> int:
        return len(self._real)

    def __iter__(self) -> Iterator[Key]:
        return self._thread.ask(lambda: iter(self._real))


class Room(Face):
    """One conversation. Iterate it for messages from now on."""

    def __iter__(self) -> Iterator[Any]:
        return one_by_one(self._thread, self._real.__aiter__())


class Conversations(Face):
    """All conversations that a member knows of."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._thread.ask(lambda: list(self._real)))

    def invitations(self) -> Iterator[Any]:
        """Those that this member is not in: known ones, then new ones."""
        return one_by_one(self._thread, self._real.invitations())

    def join(self, name: str) -> Room:
        return Room(self._thread.call(self._real.join, name), self._thread)


class Objects:
    """An object group: ``objects.method(...)``, ``objects.all.method(...)``. See ``pluribus.Group.proxy``."""

    def __init__(self, real: Any, thread: Background) -> None:
        self._real = real
        self._thread = thread

    @property
    def first(self) -> Objects:
        return Objects(self._real.first, self._thread)

    @property
    def all(self) -> Objects:
        return Objects(self._real.all, self._thread)

    @property
    def majority(self) -> Objects:
        return Objects(self._real.majority, self._thread)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._real, name)
        return lambda *args, **named: self._thread.call(method, *args, **named)

    def __repr__(self) -> str:
        return f"<synchronous {self._real!r}>"


class Replica(Face):
    """A replica of a synchronous bus: call and read. See ``pluribus.runtime.group.replica.Replica``."""

    _real: real_replica.Replica[Any]

    @property
    def name(self) -> str:
        return self._real.name

    def call(self, command: bytes, **options: Any) -> bytes:
        """Have a command applied by every member, and return what the machine made of it here."""
        return self._thread.call(self._real.call, command, **options)

    def read(self, question: Callable[[Any], T], **options: Any) -> T:
        """What ``question`` finds in the machine; it runs on the background loop."""

        async def reading() -> T:
            return await self._real.read(question, **options)

        return self._thread.call(reading)


def connect(url: str | None = None, *, name: str | None = None, **options: Any) -> Bus:
    """Join the bus that a URL names, and wait until that is done. Use it with ``with``, or close the bus yourself;
    what is still open when the process ends says goodbye then.

    ``options`` are those of ``pluribus.connect``. Inside a running asyncio loop it raises ``BadInput``.
    """
    thread = background()
    name = name if name is not None else f"process-{os.getpid()}"

    async def connecting() -> real_bus.Bus:
        return await real_bus.connect(url, name=name, **options)

    return Bus(thread.call(connecting), thread)
