"""The application's hold on a group: ``await send``, ``async for``, views.

``send`` returns when the message is admitted to the window, which is at once while there is room. Its fast path is one
list append. A task that sends or iterates without ever waiting gives the loop a turn after ``TURN_S_MAX`` of work, so
that a busy member still answers the others.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any

from ..._speed.quick import End, flatten, sends
from ..._speed.waiting import Arrivals, Line
from ...core.errors import (
    BadInput,
    Closed,
    Excluded,
    GroupMismatch,
    NotPrimary,
    Overflow,
    PluribusError,
    WouldDeadlock,
)
from ...core.frame import Message
from ...core.ids import ALL, MemberId, MessageId
from ...core.limits import TURN_S_MAX
from ...core.view import View
from ...group.asking import Answers, Question, Replies
from ...group.channel import Channel
from ...group.dispatch import Dispatch
from ...group.outgoing import Outgoing
from ...group.pieces import Large
from ...wire.bodies import BYTES, Kind, check_size, encode_body, encode_quickly
from ..loop.futures import in_a_thread
from ..loop.opening import Opening
from .asking import ANSWER_S, GroupQuestions
from .calls import GroupCalls
from .objects import Objects
from .readers import Readers
from .stability import Stability

RECEIVE_MANY = 4_096
"""Messages that ``receive_many`` takes at most, unless told otherwise."""
NO_ROOM = "does not read, or reads too slowly"


class Group(End):
    """Made by ``bus.group(name)``. Iterate it for messages; a message that was not read waits in its inbox."""

    __slots__ = (
        "_arrivals",
        "_asker",
        "_channel",
        "_current",
        "_dispatch",
        "_excluded",
        "_left",
        "_now",
        "_opened",
        "_readers",
        "_rooms",
        "_service",
        "_since",
        "_stability",
        "_view_waiters",
        "opening",
    )

    def __init__(
        self,
        channel: Channel,
        dispatch: Dispatch,
        left: Callable[[Group], None],
        now: Callable[[], float],
        line: Line | None = None,
    ) -> None:
        self._channel = channel
        self._open = channel.out
        self._alone = partial(dispatch.send_alone, channel)
        self._dispatch = dispatch
        self._opened = dispatch.opened
        self._left = left
        self._current: Iterator[Message] = iter(())
        self._arrivals = Arrivals(line or Line())
        self._rooms: list[asyncio.Future[None]] = []
        self._view_waiters: list[asyncio.Future[None]] = []
        self._now = now  # not the stack's clock: how an application spends its time is no stimulus of the protocols
        self._since = 0.0
        self._readers = Readers()
        self._excluded = ""
        self.opening = Opening(self.close)
        self._asker = GroupQuestions(channel, self._send, now)
        self._stability = Stability(channel, dispatch, now)
        self._service = GroupCalls(channel, self._asker, lambda: dispatch.consumed(channel))
        channel.on_arrival = self._arrivals.wake
        channel.on_room = lambda: _wake(self._rooms)
        channel.on_view = lambda view: _wake(self._view_waiters)
        channel.on_excluded = self._exclude

    @property
    def name(self) -> str:
        return self._channel.name

    @property
    def me(self) -> MemberId:
        return self._channel.me

    @property
    def longest_bytes(self) -> int:
        """The longest body that travels in one piece."""
        return self._channel.out.longest

    @property
    def cuts(self) -> bool:
        """Whether longer bodies are cut into pieces; else they are refused."""
        return self._dispatch.cuts

    @property
    def view(self) -> View:
        """The members now; ``views()`` tells of every change."""
        return self._channel.view

    @property
    def closed(self) -> bool:
        return self._channel.closed

    @property
    def has_unread(self) -> bool:
        """Whether messages wait to be read that no reader has taken yet."""
        return bool(self._channel.inbox)

    async def send(
        self,
        body: Any,
        to: int | None = None,
        parent: MessageId | None = None,
        timeout: float | None = None,
        wait: str | None = None,
    ) -> MessageId:
        """Send to every member, or to one. Returns the message's identity when the window has admitted the message;
        with ``wait="stable"``, when every receiver has it.

        ``parent`` is the message that this one answers; receivers see it, and semantic order delivers it first.
        ``send`` waits while a receiver's window is full, and in a totally ordered group while this member is not in the
        primary view. With ``timeout`` it raises ``Overflow`` or ``NotPrimary`` instead of waiting longer; then the
        message was not sent. A body that cannot travel raises ``BadBody`` or ``TooLarge`` at once. ``Uncertain``: the
        message was sent, and some receiver is not known to have it.
        """
        if to is None and parent is None and wait is None:
            out: Outgoing = self._open
            if type(body) is out.type:
                encoded = body if type(body) is bytes else encode_quickly(body)
                if len(encoded) <= out.alike:
                    for message in out.ids:
                        out.pending.append(encoded)
                        return message
            if type(body) is bytes and (sent := self._dispatch.send_alone(self._channel, body)) is not None:
                return sent
        if wait is None:
            return await self._send(body, ALL if to is None else to, parent, timeout)
        self._stability.check(wait)
        deadline = None if timeout is None else self._now() + timeout
        message = await self._send(body, ALL if to is None else to, parent, timeout)
        return await self._stability.confirmed(message, ALL if to is None else to, deadline)

    send = sends(send, encode_quickly)

    async def _send(self, body: Any, to: int, parent: MessageId | None, timeout: float | None) -> MessageId:
        channel = self._channel
        kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
        deadline = None if timeout is None else self._now() + timeout
        if len(encoded) > channel.out.longest and self._dispatch.cuts:
            return await self._send_large(Large(kind, check_size(encoded), parent), to, deadline)
        channel.out.check(len(encoded))
        out, dispatch = channel.out, self._dispatch
        quiet = to == ALL and not (channel.closed or channel.paused or dispatch.blocked)
        if not (quiet and dispatch.ports.engine.writable and out.fits(kind, len(encoded))):
            out = await self._admitted(kind, len(encoded), to, deadline)
        first = not out.pending
        number = out.add(kind, encoded, parent, None if kind == BYTES else type(body))
        if first:
            self._opened(channel)
        return (out.me, number)

    def _send_now(self, kind: Kind, body: Any) -> bool:
        """Send a body that the codec encodes to every member, if that needs no waiting. False: nothing was sent."""
        channel, out, dispatch = self._channel, self._channel.out, self._dispatch
        if len(body) > out.longest:
            return False
        if dispatch.send_alone(channel, body, kind) is not None:
            return True
        if channel.closed or channel.paused or channel.blocked or dispatch.blocked:
            return False
        if out.pending and not out.fits(kind, len(body)):
            dispatch.flush(channel)
        if not dispatch.ports.engine.writable or not out.fits(kind, len(body)):
            return False
        self._add(out, kind, body)
        return True

    async def _send_some(self, kind: Kind, bodies: Sequence[Any]) -> int:
        """Like ``_send_now``, as soon as there is room for the first of these; returns how many were sent."""
        while True:
            out = await self._admitted(kind, len(bodies[0]), ALL, None)
            count = out.takes(bodies)
            if count > 1 and self._dispatch.send_each(self._channel, bodies[:count], kind):
                return count
            if out.fits(kind, len(bodies[0])):  # what was in front of them may have used the room
                self._add(out, kind, bodies[0])
                return 1

    def _add(self, out: Outgoing, kind: Kind, body: Any) -> None:
        first = not out.pending
        out.add(kind, body)
        if first:
            self._opened(self._channel)

    async def _send_large(self, large: Large, to: int, deadline: float | None) -> MessageId:
        """Piece by piece, and between two of them everybody else has a turn."""
        channel = self._channel
        try:
            while large.number is None:
                out = await self._admitted(BYTES, channel.out.longest, to, deadline)
                if large.admitted(out, channel.restarts):
                    self._dispatch.stimulus(lambda: large.send_some(channel.restarts))
                    await asyncio.sleep(0)
                else:
                    left_s = None if deadline is None else deadline - self._now()
                    await self._wait(self._rooms, left_s, "has too many large messages under way: await some of them")
        finally:
            if large.end() and not channel.closed:
                self._opened(channel)
            channel.on_room()  # others may wait for our place
        return (channel.out.me, large.number)

    async def _admitted(self, kind: Kind, size: int, to: int, deadline: float | None) -> Outgoing:
        """The stream, as soon as its open batch has room for a body of this size."""
        channel = self._channel
        while True:
            if channel.closed:
                raise self._closed()
            if to != ALL and to not in channel.view:  # asked again after every wait: it may have left meanwhile
                raise BadInput(f"{MemberId(to)!r} is not a member of {channel.name!r} now: look at its view")
            out = channel.outgoing(to)
            writable = self._dispatch.ports.engine.writable and not self._dispatch.blocked
            writable = writable and not (to == ALL and (channel.paused or channel.blocked))
            if writable and out.fits(kind, size):
                return out
            if writable and out.pending:
                self._dispatch.flush(channel)
                if self._now() - self._since > TURN_S_MAX:
                    await asyncio.sleep(0)
                    self._since = self._now()
            else:
                left_s = None if deadline is None else deadline - self._now()
                if writable:
                    self._check_deadlock(to)
                try:
                    await self._wait(self._rooms, left_s, "")
                except Overflow:
                    raise self._no_room(to) from None
                self._since = self._now()

    def _no_room(self, to: int) -> PluribusError:
        """The error for a call that does not wait longer."""
        channel = self._channel
        if channel.paused and to == ALL:
            return NotPrimary(f"group {channel.name!r} {channel.paused}")
        if self._dispatch.blocked or (channel.blocked and to == ALL):
            return Overflow(f"group {channel.name!r} has no room: its view is about to change")
        names = channel.view.names
        full = [f"{names.get(m, 'a receiver')} ({MemberId(m)})" for m in self._dispatch.full(channel, to)]
        return Overflow(f"group {channel.name!r} has no room: {' and '.join(full) or 'a receiver'} {NO_ROOM}")

    def _check_deadlock(self, to: int) -> None:
        """Raise ``WouldDeadlock`` if only the waiting task could make room, or if no task has ever read this group."""
        channel, readers = self._channel, self._readers
        alone = readers.only_the_caller() or (readers.nobody and channel.stalls_itself)
        if alone and channel.me in self._dispatch.full(channel, to):
            raise WouldDeadlock(
                f"group {channel.name!r} has no room because nobody else reads it while this call waits: read it in "
                "another task, or open it with own=False"
            )

    async def send_many(
        self, bodies: Sequence[Any], *, to: int | None = None, timeout: float | None = None, wait: str | None = None
    ) -> list[MessageId]:
        """Send these one after another; ``timeout`` is for all of them. Messages that were sent before an error stay
        sent. With ``wait="stable"`` it returns when every receiver has all of them."""
        if wait is not None:
            self._stability.check(wait)
        deadline = None if timeout is None else self._now() + timeout
        sent: list[MessageId] = []
        try:
            for body in bodies:
                left_s = None if deadline is None else max(deadline - self._now(), 0.0)
                sent.append(await self.send(body, to=to, timeout=left_s))
        except PluribusError as error:
            error.add_note(f"{len(sent)} of {len(bodies)} messages were sent before")
            raise
        if wait is not None and sent:
            await self._stability.confirmed(sent[-1], ALL if to is None else to, deadline)
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
        """Send a question to every member, or to one, and await answers: ``one``, a number, ``majority`` or ``all``.

        The members of the view in which the question is delivered are asked; this member too, if it hears itself. With
        ``of``, only these members are to answer. ``all`` awaits every asked member that is still there. Raises
        ``NoMembers`` as soon as there are too few members for so many answers, ``Unanswered`` when too many handlers
        failed, and ``AnswersLate`` after ``timeout`` seconds; each has the ``answers`` that came. ``Uncertain``: this
        member was cut off before a totally ordered question had its place. It also raises what ``send`` raises.
        """
        return await self._asker.ask(question, replies, timeout, to, of, parent)

    @property
    def replied_by(self) -> Callable[[Question, Any], Any] | None:
        """What ``message.reply`` calls."""
        return self._channel.answer

    @replied_by.setter
    def replied_by(self, reply: Callable[[Question, Any], Any]) -> None:
        self._channel.answer = reply

    async def reply(self, message: Message, body: Any) -> None:
        """Answer a message that asks (``m.asks``), to its sender alone. It is no error if the sender is gone."""
        await self._asker.reply(message, body)

    def serve(self, served: object | None, names: Collection[str] | None = None, *, one_by_one: bool = False) -> None:
        """Let members call methods of an object: those marked with ``pluribus.exposed``, or those named. With None the
        serving ends.

        Calls begin in the order of the group and run concurrently: coroutines on the loop, plain functions in threads.
        With ``one_by_one`` each begins when the one before has ended. They are cancelled when the group is closed.
        """
        self._service.serve(served, names, one_by_one=one_by_one)

    async def call(
        self,
        method: str,
        *args: Any,
        replies: Replies = "all",
        timeout: float | None = ANSWER_S,
        to: int | None = None,
        **named: Any,
    ) -> Answers:
        """Call a method of the objects that the members of this group serve. Returns answers, like ``ask``.

        Members that serve nothing are not counted. If a method raises, or is not exposed, the answer is an error.
        """
        return await self._service.call(method, args, named, replies, timeout, to)

    def proxy(self, interface: type | None = None, *, timeout: float | None = ANSWER_S) -> Objects:
        """An object that stands for the objects of all members: ``await p.method()`` is the first good result,
        ``await p.all.method()`` the answers of all. ``interface`` says which methods there are."""
        return Objects(self._service, interface, timeout)

    def __aiter__(self) -> AsyncIterator[Message]:
        return flatten(self._runs())

    async def _runs(self) -> AsyncGenerator[Iterator[Message], None]:
        """The messages of each frame. Another waiting reader may take messages of the same frame."""
        channel = self._channel
        inbox = channel.inbox
        since = self._now()
        self._readers.note()
        while True:
            yield self._current
            if channel.must_report:
                self._dispatch.consumed(channel)
            if self._now() - since > TURN_S_MAX:
                await asyncio.sleep(0)
                since = self._now()
            elif inbox:
                self._take()
            elif channel.closed:
                if self._excluded:
                    raise Excluded(self._excluded)
                return
            else:
                await self._arrivals.wait()
                since = self._now()

    def _take(self) -> None:
        """Take the next frame; called when all messages of the one before are read, and not after a wait, in which
        another reader may have taken one. Another waiting reader may take messages of this frame."""
        self._current = self._channel.take()
        self._arrivals.wake()

    async def receive(self, timeout: float | None = None) -> Message:
        """The next message; ``TimeoutError`` after ``timeout`` seconds, ``Closed`` when there will be none.

        In a totally ordered group it raises ``Excluded``, once, where this member has missed messages; so does
        iterating.
        """
        for message in self._current:
            return message
        channel = self._channel
        deadline = None if timeout is None else self._now() + timeout
        self._readers.note()
        while True:
            if channel.must_report:
                self._dispatch.consumed(channel)
            if not channel.inbox and not channel.closed:
                await self._arrivals.wait(None if deadline is None else deadline - self._now())
                for message in self._current:  # who waited beside us has taken the next frame
                    return message
            if channel.inbox:
                lone = channel.take_lone()
                if lone is not None:
                    return lone
                self._take()
                for message in self._current:
                    return message
            elif channel.closed:
                raise self._closed()

    async def receive_many(self, most: int = RECEIVE_MANY, timeout: float | None = None) -> list[Message]:
        """At least one message, and as many as are there, up to ``most``; raises as ``receive`` does."""
        messages = [await self.receive(timeout)]
        while len(messages) < most:
            messages += islice(self._current, most - len(messages))
            if not self._channel.inbox or len(messages) >= most or self._channel.at_mark:
                break
            self._current = self._channel.take()
        if self._channel.must_report:
            self._dispatch.consumed(self._channel)
        return messages

    async def handle(self, handler: Callable[[Message], Any]) -> None:
        """Call ``handler`` with every message, one after another, until the group is closed.

        A coroutine function is awaited; a plain function runs in a thread, so that a slow one holds up nobody else.
        A question is answered with what the handler returns, or with the exception that it raises, unless the handler
        replied itself; an exception about any other message ends the handling.
        """
        waits = inspect.iscoroutinefunction(handler)
        async for message in self:
            handled: Awaitable[Any] = handler(message) if waits else in_a_thread(handler, message)
            if message.asks:
                await self._asker.answer_with(message, handled)
            else:
                await handled

    async def views(self) -> AsyncIterator[View]:
        """The view now, and every later one; a view that was replaced before it could be shown is skipped."""
        shown = -1
        while not self._channel.closed:
            view = self._channel.view
            if view.number != shown:
                shown = view.number
                yield view
            else:
                await self._wait(self._view_waiters, None, "")

    async def joined(self, timeout: float | None = None) -> View:
        """The first view with this member in it."""
        channel = self._channel
        return await self._view_where(lambda: channel.me in channel.view, "it was joined", timeout)

    async def restored(self) -> None:
        """Returns when this member has the state of the group, if it has one."""
        channel = self._channel
        while not (channel.state is None or channel.state.ready or self.opening.done):
            if channel.closed:
                raise Closed(f"group {self.name!r} was closed before its state was there")
            await self._arrivals.wait()
        if not self.opening.done:  # else somebody may be reading, and comes to them
            channel.take_marks()

    async def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with at least so many members."""
        return await self._view_where(lambda: len(self.view) >= members, f"{members} members were there", timeout)

    async def _view_where(self, found: Callable[[], bool], what: str, timeout: float | None) -> View:
        try:
            async with asyncio.timeout(timeout):
                while not found():
                    if self._channel.refused:
                        raise GroupMismatch(f"group {self.name!r} {self._channel.refused}")
                    if self._channel.closed:
                        raise Closed(f"group {self.name!r} was closed before {what}")
                    await self._wait(self._view_waiters, None, "")
        except TimeoutError:
            if not found():  # else it came in the very moment in which the time was over
                raise
        return self.view

    async def close(self) -> None:
        """Leave the group. Messages that were sent before are still delivered; unread messages are dropped."""
        if not self._channel.closed:
            self._dispatch.leave(self._channel)
            self._left(self)
        self.abandon()

    def _closed(self) -> PluribusError:
        if self._excluded:
            return Excluded(self._excluded)
        return Closed(f"group {self.name!r} is closed: open it again with bus.group()")

    def _exclude(self, reason: str) -> None:
        """Others asked this member to leave."""
        if not self._channel.closed:
            self._excluded = f"this member was excluded from {self.name!r}: {reason}; open it again with bus.group()"
            self._dispatch.leave(self._channel)
            self._left(self)
            self.abandon()

    def abandon(self) -> None:
        """As a crash would leave it: closed, and nobody waits for it."""
        self._channel.closed = True
        self._arrivals.wake()
        for waiters in (self._rooms, self._view_waiters):
            _wake(waiters)
        self._asker.close()
        self._service.close()
        self._stability.close()

    def __repr__(self) -> str:
        return f"<group {self.name!r}, members: {len(self.view.members)}{', closed' if self.closed else ''}>"

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _wait(self, waiters: list[asyncio.Future[None]], timeout: float | None, why: str) -> None:
        if timeout is not None and timeout <= 0:
            raise Overflow(f"group {self.name!r} {why}")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(waiter)
        try:
            if timeout is None:
                await waiter
                return
            async with asyncio.timeout(timeout):
                await waiter
        except BaseException as error:
            if waiter in waiters:
                waiters.remove(waiter)
            if isinstance(error, TimeoutError):
                raise Overflow(f"group {self.name!r} {why}") from None
            raise


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    if not waiters:
        return
    woken, waiters[:] = waiters[:], []
    for waiter in woken:
        if not waiter.done():
            waiter.set_result(None)
