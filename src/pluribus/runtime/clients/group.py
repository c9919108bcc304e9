"""A group as a client has it: through a guest at its member (``guests.py``). The calls are those of ``Group``."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...core import errors
from ...core.errors import Closed, Excluded, PluribusError
from ...core.frame import Message
from ...core.ids import MemberId, MessageId
from ...core.view import View
from ...group import asking
from ...group.asking import Answers, Replies
from ...group.calls import called
from ...group.guests import Enter, Entered, Exit, GroupHeard, GuestReply, Invoke, Question, Seen, Taken, Utter
from ...wire.bodies import encode_body
from ...wire.questions import ABSENT, Answered
from ..group.asking import ANSWER_S
from ..group.objects import Objects
from ..group.outsiders import answers_of, decoded
from ..loop.futures import in_a_thread
from ..styles.style import Style

if TYPE_CHECKING:
    from .bus import ClientBus

TAKEN_MESSAGES = 256
"""Messages after which the member hears that they were read."""


class ClientGroups(Style):
    """All groups that one client is in."""

    closes = 95

    def __init__(self, bus: ClientBus) -> None:
        super().__init__(bus)
        self.groups: dict[str, ClientGroup] = {}
        self._numbers = 0
        bus.line.heard["guests"] = self._heard
        bus.line.broken.append(self._broken)

    async def join(self, name: str, *, order: str | None, safe: bool, own: bool, open: bool) -> ClientGroup:
        found = self.groups.get(name)
        if found is None or found.closed:
            self._numbers += 1
            found = ClientGroup(self, self._numbers, name)
            asked = Enter(self._numbers, name, order or "", safe, own, open, self.bus.name)
            self.groups[name] = found
            try:
                found.entered(await self.bus.line.ask(asked))
            except BaseException:
                del self.groups[name]
                raise
        return found

    def _heard(self, heard: GroupHeard) -> None:
        for group in self.groups.values():
            if group.number == heard.number:
                group.heard(heard)

    def _broken(self) -> None:
        """The guest is gone with the connection."""
        groups, self.groups = self.groups, {}
        for group in groups.values():
            group.end("the connection to the bus broke, and this client left its groups: join them again")

    async def close(self) -> None:
        for group in list(self.groups.values()):
            await group.close()

    def abandon(self) -> None:
        self._broken()


class ClientAsker:
    """The part of a group's ``GroupQuestions`` that styles use."""

    def __init__(self, group: ClientGroup) -> None:
        self._group = group

    async def fail(self, message: Message, error: BaseException) -> None:
        await self._group.answer(message, error=(type(error).__name__, str(error)))

    async def answer_with(self, message: Message, handled: Awaitable[Any]) -> None:
        """Answer with what a handler returns or raises, unless it replied itself."""
        assert isinstance(message, asking.Question), "only what asks is answered"
        try:
            body = await handled
            if not message.answered:
                await self._group.reply(message, body)
        except Exception as error:  # noqa: BLE001 - it is the asker's to handle
            if not message.answered:
                await self.fail(message, error)

    async def give(self, to: int, word: Answered) -> None:
        for message in list(self._group.open_questions.values()):
            if message.sender == to and message.number == word.question and word.outcome == ABSENT:
                await self._group.answer(message, absent=True)


class ClientCalls:
    """Calls of methods, as ``Objects`` makes them."""

    def __init__(self, group: ClientGroup) -> None:
        self._group = group

    @property
    def group(self) -> str:
        return self._group.name

    async def call(
        self,
        method: str,
        args: Sequence[Any],
        named: Mapping[str, Any],
        replies: Replies,
        timeout: float | None,
        to: int | None,
    ) -> Answers:
        self._group._check()
        call = called(0, method, args, named)  # the number is the guest's to give
        asked = Invoke(self._group.number, call.method, call.args, call.named, replies, timeout, to)
        return answers_of(await self._group._line.ask_once(asked))


class ClientGroup:
    """Made by ``client.group``."""

    def __init__(self, groups: ClientGroups, number: int, name: str) -> None:
        self._groups = groups
        self._line = groups.bus.line
        self.number = number
        self.name = name
        self.me = MemberId(0)
        self.view = View(0, ())
        self.longest_bytes, self.cuts = 0, False
        self.closed = False
        self.open_questions: dict[int, asking.Question] = {}
        self._asker = ClientAsker(self)
        self._service = ClientCalls(self)
        self.replied_by: Callable[[asking.Question, Any], Any] = self._reply
        """What ``message.reply`` calls."""
        self._why = f"group {name!r} is closed: open it again with bus.group()"
        self._messages: deque[Message | PluribusError] = deque()
        self._views: list[asyncio.Queue[View | None]] = []
        self._arrival = asyncio.Event()
        self._unread = 0

    # What comes.

    def entered(self, entered: Entered) -> None:
        self.me = MemberId(entered.me)
        self.longest_bytes, self.cuts = entered.longest_bytes, entered.cuts
        if not self.view.members:
            self.view = view_of(entered.view)

    def heard(self, heard: GroupHeard) -> None:
        for one in heard.messages:
            try:
                body = decoded(one.kind, one.body)
            except PluribusError as error:
                self._messages.append(error)
                continue
            if one.question:
                question = asking.Question(
                    body, MemberId(one.sender), one.id, one.parent, one.orphan, one.question, self.replied_by
                )
                self.open_questions[one.question] = question
                self._messages.append(question)
            else:
                self._messages.append(Message(body, MemberId(one.sender), one.id, one.parent, one.orphan))
        if heard.view is not None:
            self.view = view_of(heard.view)
            for views in self._views:
                views.put_nowait(self.view)
        if heard.error is not None:
            kind = getattr(errors, heard.error[0], Excluded)
            self._messages.append(kind(heard.error[1]))
        if heard.closed:
            self.end(self._why)
        self._arrival.set()

    def end(self, why: str) -> None:
        self.closed, self._why = True, why
        for views in self._views:
            views.put_nowait(None)
        self._arrival.set()

    # Reading.

    @property
    def has_unread(self) -> bool:
        """Whether messages wait to be read; see ``Group.has_unread``."""
        return bool(self._messages)

    async def receive(self, timeout: float | None = None) -> Message:
        """The next message; see ``Group.receive``."""
        async with asyncio.timeout(timeout):
            while not self._messages:
                if self.closed:
                    raise Closed(self._why)
                self._arrival.clear()
                await self._arrival.wait()
        found = self._messages.popleft()
        self._unread += 1
        if self._unread >= TAKEN_MESSAGES or not self._messages:
            self._line.tell(0, Taken(self.number, self._unread))
            self._unread = 0
        if isinstance(found, PluribusError):
            raise found
        return found

    async def receive_many(self, most: int = 4_096, timeout: float | None = None) -> list[Message]:
        """At least one message, and as many as are there."""
        messages = [await self.receive(timeout)]
        while self._messages and len(messages) < most and isinstance(self._messages[0], Message):
            messages.append(await self.receive())
        return messages

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            try:
                message = await self.receive()
            except Closed:
                return
            yield message

    async def views(self) -> AsyncIterator[View]:
        """The view now, and each that follows."""
        queue: asyncio.Queue[View | None] = asyncio.Queue()
        self._views.append(queue)
        try:
            yield self.view
            while (view := await queue.get()) is not None:
                yield view
        finally:
            self._views.remove(queue)

    async def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with so many members."""
        async with asyncio.timeout(timeout):
            async for view in self.views():
                if len(view.members) >= members:
                    return view
        raise Closed(self._why)

    # Sending.

    async def send(
        self,
        body: Any,
        to: int | None = None,
        parent: MessageId | None = None,
        timeout: float | None = None,
        wait: str | None = None,
    ) -> MessageId:
        """See ``Group.send``; ``Uncertain`` if the connection broke meanwhile."""
        self._check()
        if wait not in (None, "stable"):
            raise errors.BadInput(f"wait={wait!r} is nothing to wait for: use wait='stable', or leave it out")
        kind, encoded = encode_body(body)
        whom = None if to is None else int(to)
        asked = Utter(self.number, kind, encoded, whom, parent, wait == "stable", timeout)
        sender, number = await self._line.ask_once(asked)
        return (MemberId(sender), number)

    async def send_many(
        self, bodies: Iterable[Any], *, to: int | None = None, timeout: float | None = None, wait: str | None = None
    ) -> list[MessageId]:
        """Send all of these, in order; ``timeout`` is for all of them. See ``Group.send_many``."""
        all_of_them = list(bodies)
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        sent: list[MessageId] = []
        try:
            for place, body in enumerate(all_of_them, 1):
                left_s = None if deadline is None else max(deadline - loop.time(), 0.0)
                is_last = place == len(all_of_them)
                sent.append(await self.send(body, to=to, timeout=left_s, wait=wait if is_last else None))
        except PluribusError as error:
            error.add_note(f"{len(sent)} of {len(all_of_them)} messages were sent before")
            raise
        return sent

    async def ask(
        self,
        question: Any,
        *,
        replies: Replies = "all",
        timeout: float | None = ANSWER_S,
        to: int | None = None,
        of: Collection[int] = (),
        parent: MessageId | None = None,
    ) -> Answers:
        """See ``Group.ask``."""
        self._check()
        kind, encoded = encode_body(question)
        whom = None if to is None else int(to)
        asked = Question(self.number, kind, encoded, replies, timeout, whom, [int(member) for member in of], parent)
        return answers_of(await self._line.ask_once(asked))

    async def call(
        self,
        method: str,
        *args: Any,
        replies: Replies = "all",
        timeout: float | None = ANSWER_S,
        to: int | None = None,
        **named: Any,
    ) -> Answers:
        """Call a method of the objects that members of this group serve. See ``Group.call``."""
        return await self._service.call(method, args, named, replies, timeout, to)

    def proxy(self, interface: type | None = None, *, timeout: float | None = ANSWER_S) -> Objects:
        """An object that stands for the objects of all members. See ``Group.proxy``."""
        return Objects(self._service, interface, timeout)

    def serve(self, served: object | None, names: Collection[str] | None = None, *, one_by_one: bool = False) -> None:
        """Only members serve objects; a client serves them with ``bus.directory.add``."""
        raise errors.BadInput(
            "group.serve is for members, and client:// is none: use bus.directory.add, or connect to the bus itself"
        )

    async def handle(self, handler: Callable[[Message], Any]) -> None:
        """Call ``handler`` with every message, one after another, until the group is closed. See ``Group.handle``."""
        waits = inspect.iscoroutinefunction(handler)
        async for message in self:
            handled: Awaitable[Any] = handler(message) if waits else in_a_thread(handler, message)
            if message.asks:
                await self._asker.answer_with(message, handled)
            else:
                await handled

    async def reply(self, message: Message, body: Any) -> None:
        """Answer a message that asks."""
        kind, encoded = encode_body(body)
        await self.answer(message, kind, encoded)

    def _reply(self, question: asking.Question, body: Any) -> Any:
        return self.reply(question, body)

    async def answer(
        self,
        message: Message,
        kind: int | str = 0,
        encoded: bytes = b"",
        error: tuple[str, str] | None = None,
        absent: bool = False,
    ) -> None:
        if not isinstance(message, asking.Question):
            raise errors.BadInput("this message asks nothing: look at m.asks before m.reply")
        if self.open_questions.pop(message.number, None) is None:
            raise errors.BadInput("this question is answered already: a member answers once")
        message.answered = True
        await self._line.ask(GuestReply(self.number, message.number, kind, encoded, error, absent))

    # The end.

    def _check(self) -> None:
        if self.closed:
            raise Closed(self._why)

    async def close(self) -> None:
        """Leave the group."""
        if not self.closed:
            self.end(self._why)
            self._groups.groups.pop(self.name, None)
            with suppress(PluribusError):
                await self._line.ask(Exit(self.number))

    def __repr__(self) -> str:
        return f"<group {self.name!r} of a client, members: {len(self.view.members)}>"

    async def __aenter__(self) -> ClientGroup:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def view_of(seen: Seen) -> View:
    names: dict[int, str] = {MemberId(member): name for member, name in seen.names.items()}
    return View(seen.number, tuple(map(MemberId, seen.members)), names, seen.agreed)
