"""Guests: members of the bus that a member runs for its clients, so that these can be in groups.

A client that joins a group gets a *guest*: a full member of the bus, with the client's name, in the process of the
client's member. One guest serves all groups of a client. The group's members see the guest. It goes with the
connection.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...core.errors import BadInput, Closed, Excluded, Overflow, PluribusError
from ...core.frame import Message
from ...core.limits import CLIENT_EVENTS_MAX, QUESTIONS_MAX
from ...core.view import View
from ...group import asking
from ...group.guests import (
    Enter,
    Entered,
    Exit,
    GroupHeard,
    GuestReply,
    Invoke,
    Question,
    Seen,
    Taken,
    Utter,
    Uttered,
)
from ...group.requests import Kind
from ...wire.bodies import encode_body
from ...wire.questions import ABSENT, Answered, Called
from ..group.asking import failure
from ..group.group import Group
from ..group.outsiders import decoded, replied
from ..loop.lateness import loaded
from ..styles.style import Asker, Style

if TYPE_CHECKING:
    from ..bus import Bus
    from ..styles.access.guard import Guard

GUEST_WORDS = {"slots": "pluribus.slots.guests:GuestWords"}
"""Styles whose words in groups need rights of their own, by the first level of the names of the groups."""
GROUPS_MAX = 256
"""Groups of one client."""
PUSH_MESSAGES_MAX = 1_024


class Guests(Style):
    """The guests of one member's clients."""

    closes = 20

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._guests: dict[int, asyncio.Future[Bus]] = {}
        """By the identity of the connection for which each guest is."""

    async def handle(self, request: Any, asker: Asker) -> Any:
        if isinstance(request, Enter):
            return await self._enter(request, asker)
        seat = asker.held.get(("guest", request.number))
        if not isinstance(seat, GuestSeat):
            if isinstance(request, Taken | Exit):
                return None
            raise BadInput(f"this client is in no group number {request.number}: join it again")
        if isinstance(request, Taken):
            return seat.taken(request.count)
        if isinstance(request, Exit):
            del asker.held["guest", request.number]
            return await seat()
        if isinstance(request, Utter):
            return await seat.send(request)
        if isinstance(request, Question):
            return await seat.ask(request)
        if isinstance(request, Invoke):
            return await seat.call(request)
        if isinstance(request, GuestReply):
            return await seat.reply(request)
        return await super().handle(request, asker)

    async def _enter(self, request: Enter, asker: Asker) -> Entered:
        if sum(key[0] == "guest" for key in asker.held) >= GROUPS_MAX:
            raise Overflow(f"{GROUPS_MAX} groups of one client: leave some")
        if ("guest", request.number) in asker.held:
            raise BadInput(f"this client is in a group number {request.number} already")
        place = GUEST_WORDS.get(request.name.partition("/")[0])
        if place is not None:
            await loaded(place.partition(":")[0])
        guest = await self._guest(request.as_name, asker)
        options: dict[str, Any] = {"order": request.order or None, "safe": request.safe, "own": request.own}
        open = request.open and place is None  # what others say from outside would not be looked at
        group = await guest.group(request.name, open=open, **options)
        words = words_of_guests(request.name)
        seat = asker.held["guest", request.number] = GuestSeat(request.number, group, asker, words, self.bus.guard)
        seat.start()
        return Entered(int(group.me), seen(group.view), group.longest_bytes, group.cuts)

    async def guest_of(self, asker: Asker) -> Bus | None:
        """The member that is run for a client, if it has one."""
        found = self._guests.get(id(asker))
        return None if found is None else await asyncio.shield(found)

    async def _guest(self, name: str, asker: Asker) -> Bus:
        found = self._guests.get(id(asker))
        if found is None:
            found = self._guests[id(asker)] = asyncio.ensure_future(self.bus.guest(name))
            asker.held["guests"] = lambda: self._gone(id(asker))
        try:
            return await asyncio.shield(found)
        except BaseException:
            if found.done():
                self._guests.pop(id(asker), None)
            raise

    async def _gone(self, key: int) -> None:
        guest = self._guests.pop(key, None)
        if guest is not None:
            with suppress(PluribusError, asyncio.CancelledError):
                await (await guest).close(timeout=0)

    async def close(self) -> None:
        for key in list(self._guests):
            await self._gone(key)

    def abandon(self) -> None:
        for guest in self._guests.values():
            if guest.done() and not guest.cancelled() and guest.exception() is None:
                guest.result().abandon()
            else:
                guest.cancel()


class GuestSeat:
    """One group in which a client is a guest. Its messages are pushed as far as the client has room. Calling it
    leaves."""

    def __init__(self, number: int, group: Group, asker: Asker, words: Any, guard: Guard) -> None:
        self._words = words
        """What the style of the group knows of its words, for the guard; None: a client that may join may say all."""
        self._guard = guard
        self._number = number
        self._group = group
        self._asker = asker
        self._under_way = 0
        self._room = asyncio.Event()
        self._room.set()
        self._questions: dict[int, asking.Question] = {}
        self._asked = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._watch())]

    def taken(self, count: int) -> None:
        self._under_way = max(self._under_way - count, 0)
        if self._under_way < CLIENT_EVENTS_MAX:
            self._room.set()

    async def _said(self, kind: Kind, encoded: bytes) -> Any:
        body = decoded(kind, encoded)
        return body if self._words is None else await self._guard.admit_words(self._words, body, self._asker.visitor)

    async def send(self, request: Utter) -> tuple[int, int]:
        body = await self._said(request.kind, request.body)
        wait = "stable" if request.stable else None
        options: dict[str, Any] = {"to": request.to, "parent": request.parent, "timeout": request.timeout_s}
        sender, number = await self._group.send(body, wait=wait, **options)
        return (int(sender), number)

    async def ask(self, request: Question) -> Any:
        body = await self._said(request.kind, request.body)
        options: dict[str, Any] = {"to": request.to, "of": request.of, "parent": request.parent}
        return await replied(self._group.ask(body, replies=request.replies, timeout=request.wait_s, **options))

    async def call(self, request: Invoke) -> Any:
        """Call methods in the group. Arguments and results are passed on encoded: their types need not be known
        here."""
        group, replies = self._group, asking.checked_replies(request.replies)
        call = Called(group._channel.new_question(), request.method, request.args, request.named)
        return await replied(group._asker.awaited(call, replies, request.wait_s, request.to))

    async def reply(self, request: GuestReply) -> None:
        question = self._questions.pop(request.question, None)
        if question is None:
            raise BadInput("this question is answered already, or too many are open: a member answers once")
        if request.absent:
            question.answered = True
            await self._group._asker.give(question.sender, Answered(question.number, ABSENT))
        elif request.error is not None:
            error = type(request.error[0], (Exception,), {})(request.error[1])
            question.answered = True
            await self._group._asker.give(question.sender, failure(question.number, error))
        else:
            await self._group.reply(question, decoded(request.kind, request.body))

    async def _read(self) -> None:
        with suppress(OSError):
            while not self._group.closed:
                try:
                    messages = await self._group.receive_many(PUSH_MESSAGES_MAX)
                except Excluded as error:
                    await self._push(GroupHeard(self._number, error=(type(error).__name__, str(error))))
                    continue
                except Closed:
                    break
                self._under_way += len(messages)
                if self._under_way >= CLIENT_EVENTS_MAX:
                    self._room.clear()
                await self._push(GroupHeard(self._number, [self._uttered(message) for message in messages]))
                await self._room.wait()
            await self._push(GroupHeard(self._number, closed=True))

    def _uttered(self, message: Message) -> Uttered:
        question = 0
        if self._words is not None:
            self._words.heard(message.body)
        if isinstance(message, asking.Question):
            if len(self._questions) >= QUESTIONS_MAX:  # the oldest will hardly be answered any more
                del self._questions[next(iter(self._questions))]
            self._asked += 1
            question = self._asked
            self._questions[question] = message
        parent = None if message.parent is None else (int(message.parent[0]), message.parent[1])
        id = (int(message.id[0]), message.id[1])
        return Uttered(*encode_body(message.body), int(message.sender), id, parent, message.orphan, question)

    async def _watch(self) -> None:
        with suppress(OSError):
            async for view in self._group.views():
                await self._push(GroupHeard(self._number, view=seen(view)))

    async def _push(self, heard: GroupHeard) -> None:
        await self._asker.push("guests", heard)

    async def __call__(self) -> None:
        for task in self._tasks:
            task.cancel()
        with suppress(PluribusError):
            await self._group.close()


def words_of_guests(group: str) -> Any:
    """What is known of the words that are said in a group of this name, for the guard."""
    place = GUEST_WORDS.get(group.partition("/")[0])
    if place is None:
        return None
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)(group)


def seen(view: View) -> Seen:
    names = {int(member): name for member, name in view.names.items()}
    return Seen(view.number, [int(member) for member in view.members], names, view.agreed)
