"""``bus.communicator``: sends messages to objects by id, by alias or to all of an alias, and awaits answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ....core.errors import Closed, Gap, NoObject, PluribusError, Refused
from ....core.limits import UPDATES_WAITING_MAX
from ....objects.messages import ObjectMessage, Said, error_of
from ....objects.names import checked_alias
from ....wire.kqml import Kqml, Word, kqml
from ...group.asking import ANSWER_S
from .places import HERE
from .shadows import Shadow, said_of, sent

if TYPE_CHECKING:
    from .post import Post

Receiver = Shadow | str
"""A shadow, an id or an alias."""


class ObjectCommunicator:
    """Made by the bus. ``sender`` is an object of this process, or its shadow; without it, the program itself."""

    def __init__(self, post: Post) -> None:
        self._post = post

    async def send(self, receiver: Receiver, message: Kqml | str, *, sender: object | None = None) -> None:
        """Send KQML, or its text, to the object with an id, or to the next in turn of an alias; a ``broadcast`` goes to
        all objects of the alias. ``NoObject`` if there is none. A message to an object of this process never touches
        the network."""
        await sent(self._post, _name(receiver), said_of(message), sender)

    async def send_object(
        self,
        receiver: Receiver,
        body: Any,
        *,
        in_reply_to: str = "",
        reply_with: str = "",
        sender: object | None = None,
    ) -> None:
        """Send an object of a registered type, with all objects that it refers to. With ``in_reply_to`` it answers a
        message that came with that ``:reply-with``."""
        await self._post.send(_name(receiver), ObjectMessage(body, "", "", reply_with, in_reply_to), sender)

    async def ask(
        self,
        receiver: Receiver,
        message: Kqml | str | ObjectMessage,
        *,
        sender: object | None = None,
        timeout: float | None = ANSWER_S,
    ) -> Said:
        """Send a message and await its answer; see ``Shadow.ask``."""
        return await self._post.ask(_name(receiver), said_of(message), sender, timeout)

    async def broadcast(self, alias: str, message: Kqml | str, *, sender: object | None = None) -> None:
        """Send to every object of an alias. A message with another performative goes as the content of a
        ``broadcast``."""
        await self._post.broadcast(checked_alias(alias), _broadcast(said_of(message)), sender)

    async def ask_all(
        self,
        alias: str,
        message: Kqml | str,
        *,
        sender: object | None = None,
        timeout: float | None = ANSWER_S,
    ) -> list[Said]:
        """Ask every object of an alias; returns all answers, ``error`` and ``sorry`` included. ``AnswersLate`` if some
        did not come in time."""
        said = _broadcast(said_of(message))
        return [answer for _, answer in await self._post.collecting.gather(alias, said, sender, timeout)]

    async def multicast(self, message: Kqml | str, *, sender: object | None = None) -> None:
        """Send once to all processes, for the objects of the alias ``:receiver``. ``Refused`` where the engine has no
        multicast."""
        said = said_of(message)
        self.check_multicast()
        group = said.get("receiver") if isinstance(said, Kqml) else ""
        await self._post.broadcast(checked_alias(str(group or "")), said, sender)

    def check_multicast(self) -> None:
        if not self._post.bus._engine.broadcasts:
            raise Refused(
                f"the engine {self._post.bus._engine.name!r} has no multicast: use unicast mode, or a multicast:// bus"
            )

    def subscribe(
        self, receiver: Receiver, content: Any, *, sender: object | None = None, timeout: float | None = ANSWER_S
    ) -> Updates:
        """Subscribe to an object's updates on ``content``: ``async with c.subscribe(...) as updates``, then iterate."""
        return Updates(self._post, _name(receiver), content, sender, timeout)

    async def notify(self, who: object, content: Any, value: Any) -> int:
        """Send a value to the subscribers of this content of an object of ours; returns how many they are."""
        resident = self._post.directory.resident(who.id if isinstance(who, Shadow) else who)
        told = 0
        for subscriber, token in resident.wanted_by(content):
            try:
                message = kqml("tell", content=value, in_reply_to=Word(token))
                await self._post.send(subscriber, message, resident)
                told += 1
            except NoObject:
                resident.subscribers.pop((subscriber, token), None)
        return told

    def stats(self) -> dict[str, int]:
        """Counters of this process's objects."""
        return self._post.stats()

    def watch(self) -> Watching:
        """Every message that reaches an object of this process from now on; iterate it."""
        return Watching(self._post)


class Waiting:
    """Messages that wait for one iteration. If they become too many, the oldest are dropped, and a ``Gap`` says so."""

    def __init__(self) -> None:
        self._messages: deque[Said | PluribusError] = deque()
        self._missed = 0
        self._arrived = asyncio.Event()
        self.closed = False

    def put(self, message: Said | PluribusError) -> None:
        if len(self._messages) >= UPDATES_WAITING_MAX:
            self._messages.popleft()
            self._missed += 1
        self._messages.append(message)
        self._arrived.set()

    def close(self) -> None:
        self.closed = True
        self._arrived.set()

    async def receive(self, timeout: float | None = None) -> Said:
        """The next message. ``Gap`` in the place of dropped ones, ``Closed`` when there will be no more."""
        async with asyncio.timeout(timeout):
            while not self._messages:
                if self.closed:
                    raise Closed("it was closed: begin again")
                self._arrived.clear()
                await self._arrived.wait()
        if self._missed:
            missed, self._missed = self._missed, 0
            raise Gap(f"{missed} messages were given up, because nobody read them: read faster", missed)
        found = self._messages.popleft()
        if isinstance(found, PluribusError):
            self.close()
            raise found
        return found

    async def __aiter__(self) -> AsyncIterator[Said]:
        while True:
            try:
                yield await self.receive()
            except Closed:
                return


class Watching(Waiting):
    """Use it with ``with``."""

    def __init__(self, post: Post) -> None:
        super().__init__()
        self._post = post

    def __enter__(self) -> Watching:
        self._post.taps.append(self.put)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._post.taps.remove(self.put)
        self.close()


class Updates(Waiting):
    """A subscription to the updates of one object. If the object's process is gone, ``NoMembers`` is raised in the
    place of the next update; if the object is beyond a bridge, ``RemoteError``. ``bridges`` is the number of bridges
    that the subscription has crossed."""

    def __init__(
        self,
        post: Post,
        receiver: str,
        content: Any,
        sender: object | None,
        timeout: float | None,
        bridges: int = 0,
    ) -> None:
        super().__init__()
        self._post = post
        self._receiver = receiver
        self._content = content
        self._by = post.sender(sender)
        self._timeout = timeout
        self._more = {"bridges": Word(str(bridges))} if bridges else {}
        self._token = post.replies.new_token()
        self._at: Shadow | None = None

    async def open(self) -> Updates:
        member, id = HERE, self._receiver
        if id not in self._post.directory.residents:
            member, id = await self._post.places.one(id)
        begun: asyncio.Future[Said | PluribusError] = asyncio.get_running_loop().create_future()

        def tell(message: Said | PluribusError) -> None:
            if not begun.done():
                begun.set_result(message)
            else:
                ended = None if isinstance(message, PluribusError) else error_of(message)
                self.put(message if ended is None else ended)

        self._post.replies.begin(self._by.id, self._token, member, tell, standing=True)
        try:
            message = kqml("subscribe", content=self._content, reply_with=Word(self._token), **self._more)
            await self._post.send(id, message, self._by)
            async with asyncio.timeout(self._timeout):
                first = await begun
            error = first if isinstance(first, PluribusError) else error_of(first)
            if error is not None:
                raise error
        except BaseException:
            self._post.replies.forget(self._by.id, self._token)
            raise
        self._at = Shadow(self._post, id, member)
        return self

    async def aclose(self) -> None:
        """End the subscription; the object is told."""
        if self._at is not None and not self.closed:
            self._post.replies.forget(self._by.id, self._token)
            self.close()
            with suppress(PluribusError):  # the object is gone, and its subscribers with it
                await self._at.send(kqml("discard", in_reply_to=Word(self._token)), sender=self._by)

    async def __aenter__(self) -> Updates:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _name(receiver: Receiver) -> str:
    return receiver.id if isinstance(receiver, Shadow) else str(receiver)


def _broadcast(message: Said) -> Kqml:
    if isinstance(message, Kqml) and message.performative == "broadcast":
        return message
    assert isinstance(message, Kqml), "only KQML is broadcast"
    return kqml("broadcast", content=message)
