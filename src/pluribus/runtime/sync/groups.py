"""Groups without ``await``, and what stands on them: caches, notification buses, object groups, replicas."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...core.errors import Closed
from ...core.frame import Message
from ...core.ids import MemberId, MessageId
from ...core.view import View
from ...group.asking import Answers, Replies
from ...group.cache import Key
from ...group.log import StateMachine
from ...group.replica import CallId
from ..group import cache as real_cache
from ..group import group as real_group
from ..group import notifications as real_notifications
from ..group import relay as real_relay
from ..group import replica as real_replica
from ..group.asking import ANSWER_S
from ..group.cache import APPLIED_S
from ..loop.background import Background
from .face import Closing, one_by_one

if TYPE_CHECKING:  # loaded when first used
    from ..clients.group import ClientGroup
    from ..keepers import durable_replica as real_durable_replica

M = TypeVar("M", bound=StateMachine)
T = TypeVar("T")


class Group(Closing):
    """A group of a synchronous bus: send, iterate, look at the view. See ``pluribus.Group``."""

    _real: real_group.Group | ClientGroup

    def __init__(self, real: real_group.Group | ClientGroup, thread: Background) -> None:
        super().__init__(real, thread)
        self._fetched: deque[Message] = deque()
        self._turn = threading.Condition()
        self._fetching = False
        real.replied_by = lambda question, body: thread.call(real.reply, question, body)

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

    @property
    def longest_bytes(self) -> int:
        """The longest body that travels in one piece."""
        return self._real.longest_bytes

    @property
    def cuts(self) -> bool:
        """Whether longer bodies are cut into pieces; else they are refused."""
        return self._real.cuts

    def send(
        self,
        body: Any,
        to: int | None = None,
        parent: MessageId | None = None,
        timeout: float | None = None,
        wait: str | None = None,
    ) -> MessageId:
        """Send one message. See ``pluribus.Group.send``; ``send_many`` is much faster for many."""

        async def crossed() -> MessageId:
            return await self._real.send(body, to=to, parent=parent, timeout=timeout, wait=wait)

        return self._thread.call(crossed)

    def send_many(
        self, bodies: Iterable[Any], *, to: int | None = None, timeout: float | None = None, wait: str | None = None
    ) -> list[MessageId]:
        """Send all of these, in order, in one crossing. See ``pluribus.Group.send_many``."""
        return self._thread.call(self._real.send_many, list(bodies), to=to, timeout=timeout, wait=wait)

    def ask(
        self,
        question: Any,
        *,
        replies: Replies = "all",
        timeout: float | None = ANSWER_S,
        to: int | None = None,
        of: Collection[int] = (),
        parent: MessageId | None = None,
    ) -> Answers:
        """Ask every member, or some, and wait for answers. See ``pluribus.Group.ask``."""
        options: dict[str, Any] = {"replies": replies, "timeout": timeout, "to": to, "of": of, "parent": parent}
        return self._thread.call(self._real.ask, question, **options)

    def reply(self, message: Message, body: Any) -> None:
        """Answer a message that asks. See ``pluribus.Group.reply``."""
        self._thread.call(self._real.reply, message, body)

    def serve(self, served: object | None, names: Collection[str] | None = None, *, one_by_one: bool = False) -> None:
        """Let members call methods of an object. See ``pluribus.Group.serve``."""
        self._thread.ask(self._real.serve, served, names, one_by_one=one_by_one)

    def call(
        self,
        method: str,
        *args: Any,
        replies: Replies = "all",
        timeout: float | None = ANSWER_S,
        to: int | None = None,
        **named: Any,
    ) -> Answers:
        """Call a method of the objects that the members serve. See ``pluribus.Group.call``."""

        async def crossed() -> Answers:
            return await self._real.call(method, *args, replies=replies, timeout=timeout, to=to, **named)

        return self._thread.call(crossed)

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

    def proxy(self, interface: type | None = None, *, timeout: float | None = ANSWER_S) -> Objects:
        """An object that stands for the objects of all members; see ``pluribus.Group.proxy``."""
        return Objects(self._real.proxy(interface, timeout=timeout), self._thread)

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


class Cache(Closing):
    """A replicated cache of a synchronous bus. See ``pluribus.Cache``."""

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

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def view(self) -> View:
        """The members that have the cache."""
        return self._real.view

    def put(self, key: Key, value: Any, timeout: float | None = APPLIED_S) -> None:
        """Write an entry everywhere; returns when this member has it. See ``Cache.put``."""
        self._thread.call(self._real.put, key, value, timeout)

    def remove(self, key: Key, timeout: float | None = APPLIED_S) -> None:
        """Remove an entry everywhere; one that is not there is no error."""
        self._thread.call(self._real.remove, key, timeout)

    def clear(self, timeout: float | None = APPLIED_S) -> None:
        """Remove all entries everywhere."""
        self._thread.call(self._real.clear, timeout)

    def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with at least so many members."""
        return self._thread.call(self._real.wait_for, members, timeout)

    def stats(self) -> dict[str, int]:
        return self._thread.ask(self._real.stats)


class Notifications(Closing):
    """A notification bus of a synchronous bus. See ``pluribus.Bus.notifications``."""

    _real: real_notifications.Notifications

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def view(self) -> View:
        """The members that are told."""
        return self._real.view

    def notify(
        self,
        notification: Any,
        *,
        to: int | None = None,
        parent: MessageId | None = None,
        timeout: float | None = None,
        wait: str | None = None,
    ) -> MessageId:
        """Tell every member, this one included; the options are those of ``send`` of a group."""
        return self._thread.call(self._real.notify, notification, to=to, parent=parent, timeout=timeout, wait=wait)

    def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with at least so many members."""
        return self._thread.call(self._real.wait_for, members, timeout)


class Relayed(Closing):
    """A sender to an open group that this process is not in. See ``pluribus.Bus.relay``."""

    _real: real_relay.Relayed

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def pending(self) -> int:
        """Messages that not every member is known to have."""
        return self._thread.ask(lambda: self._real.pending)

    def send(self, body: Any, *, timeout: float | None = None, wait: str | None = None) -> MessageId:
        """Send one message. See ``Relayed.send``."""
        return self._thread.call(self._real.send, body, timeout=timeout, wait=wait)

    def drain(self, timeout: float | None = None) -> None:
        """Return when every member has what was sent."""
        self._thread.call(self._real.drain, timeout)


class Replica(Closing, Generic[M]):
    """A replicated state machine of a synchronous bus. See ``pluribus.Bus.replica``. The machine runs on the background
    loop: look at it with ``read``, which sees no command half done."""

    _real: real_replica.Replica[M]

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def machine(self) -> M:
        return self._real.machine

    @property
    def view(self) -> View:
        """The members that have the replica open."""
        return self._real.view

    @property
    def applied(self) -> int:
        """How many commands this member has applied."""
        return self._thread.ask(lambda: self._real.applied)

    @property
    def generation(self) -> int:
        """Another number means that all members with the state were gone, and the replica began anew."""
        return self._thread.ask(lambda: self._real.generation)

    def new_id(self) -> CallId:
        """An identity for a call that has not been made yet, for callers that write it down first."""
        return self._thread.ask(self._real.new_id)

    def call(self, command: bytes, *, id: CallId | None = None, timeout: float | None = None) -> bytes:
        """Have a command applied once, and return what the machine made of it."""
        return self._thread.call(self._real.call, command, id=id, timeout=timeout)

    def read(self, question: Callable[[M], T], *, stale: bool = False, timeout: float | None = None) -> T:
        """What ``question`` finds in the machine; it runs on the background loop."""

        async def reading() -> T:
            return await self._real.read(question, stale=stale, timeout=timeout)

        return self._thread.call(reading)

    def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with at least so many members."""
        return self._thread.call(self._real.wait_for, members, timeout)


class DurableReplica(Closing, Generic[M]):
    """A state machine at the keepers, of a synchronous bus. See ``pluribus.Bus.replica``."""

    _real: real_durable_replica.DurableReplica[M]

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def kind(self) -> str:
        return self._real.kind

    def new_id(self) -> CallId:
        """An identity for a call that has not been made yet, for callers that write it down first."""
        return self._thread.ask(self._real.new_id)

    def call(self, command: bytes, *, id: CallId | None = None, timeout: float | None = None) -> bytes:
        """Have a command applied once, and return what the machine made of it."""
        return self._thread.call(self._real.call, command, id=id, timeout=timeout)

    def query(self, question: bytes, *, stale: bool = False, timeout: float | None = None) -> bytes:
        """What ``machine.query(question)`` answers at a keeper."""
        return self._thread.call(self._real.query, question, stale=stale, timeout=timeout)

    def read(self, question: Callable[[M], T], *, stale: bool = False, timeout: float | None = None) -> T:
        """What ``question`` finds in the machine of this process's own keeper; it runs on the background loop."""

        async def reading() -> T:
            return await self._real.read(question, stale=stale, timeout=timeout)

        return self._thread.call(reading)
