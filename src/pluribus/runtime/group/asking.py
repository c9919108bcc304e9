"""``await`` on questions: a group's ``ask`` and ``reply``. ``group.asking`` says which members are asked, and when
asking ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from ...core.errors import AnswersLate, BadInput, Closed, PluribusError
from ...core.frame import Message
from ...core.ids import ALL, MessageId
from ...group.asking import Answers, Question, Replies, checked_replies
from ...group.channel import Channel
from ...wire.questions import FAILED, GOOD, Answered, Asked, Called, wrapped

log = logging.getLogger(__name__)

ANSWER_S = 10.0
"""Seconds for which answers are awaited by default."""
ERROR_CHARS_MAX = 2_000
"""So much of an exception's text is sent."""

Send = Callable[[Any, int, MessageId | None, float | None], Awaitable[MessageId]]
"""Body, destination, parent, time-out: the group's own way to send."""


class GroupQuestions:
    """The questions and answers of one group, for one member."""

    def __init__(self, channel: Channel, send: Send, now: Callable[[], float]) -> None:
        self._channel = channel
        self._asking = channel.asking
        self._send = send
        self._now = now
        self.unreachable = 0
        """Answers to members that were gone."""
        channel.answer = self.reply

    async def ask(
        self,
        body: Any,
        replies: Replies,
        timeout: float | None,
        to: int | None,
        of: Collection[int],
        parent: MessageId | None,
    ) -> Answers:
        if to is not None and of:
            raise BadInput("to= and of= exclude each other: a question to one member is answered by that one")
        number = self._channel.new_question()
        word = Asked(number, wrapped(body), tuple(map(int, of)))
        return await self.awaited(word, checked_replies(replies), timeout, to, of, parent)

    async def awaited(
        self,
        word: Asked | Called,
        replies: Replies,
        timeout: float | None,
        to: int | None = None,
        of: Collection[int] = (),
        parent: MessageId | None = None,
    ) -> Answers:
        """Send a question or a call, and wait until it is over."""
        channel, asking = self._channel, self._asking
        if channel.closed:
            raise Closed(f"group {channel.name!r} is closed: open it again with bus.group()")
        deadline = None if timeout is None else self._now() + timeout
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        members = channel.view.members if to is None else {to}.intersection(channel.view.members)
        told: list[Answers | PluribusError] = []

        def tell(found: Answers | PluribusError) -> None:
            told.append(found)
            if not over.done():
                over.set_result(None)

        pending = asking.begin(word.question, members, replies, of, tell)
        if to is not None:
            asking.place(word.question)
        try:
            sent = await self._send(word, ALL if to is None else to, parent, timeout)
            asking.sent(word.question, sent[1], channel.view.members)
            async with asyncio.timeout(None if deadline is None else max(deadline - self._now(), 0.0)):
                await over
        except TimeoutError:
            if told:  # in the same turn of the loop
                return _found(told[0])
            missing = ", ".join(map(repr, sorted(pending.waiting))) or "a view"
            raise AnswersLate(
                f"{len(pending.answers)} answers of {channel.name!r} came in {timeout:g} s, {missing} did not answer: "
                "give it more time, or ask for fewer replies",
                pending.so_far(),
            ) from None
        finally:
            asking.forget(word.question)
        return _found(told[0])

    async def reply(self, message: Message, body: Any) -> None:
        question = _open_question(message)
        await self._answer(question, Answered(question.number, GOOD, wrapped(body)))

    async def fail(self, message: Message, error: BaseException) -> None:
        question = _open_question(message)
        await self._answer(question, failure(question.number, error))

    async def _answer(self, question: Question, word: Answered) -> None:
        question.answered = True
        try:
            await self.give(question.sender, word)
        except BaseException:  # too large for this stack, for example: another one may be given
            question.answered = False
            raise

    async def answer_with(self, message: Message, handled: Awaitable[Any]) -> None:
        """Answer with what a handler returns or raises, unless it replied itself."""
        assert isinstance(message, Question), "only what asks is answered"
        try:
            body = await handled
            if not message.answered:
                await self.reply(message, body)
        except Exception as error:  # it is the asker's to handle
            log.debug("a handler of %r failed", self._channel.name, exc_info=True)
            if not message.answered:
                await self.fail(message, error)

    async def give(self, to: int, word: Answered) -> None:
        """Hand an answer to the asker. One that is gone needs none."""
        channel = self._channel
        if to == channel.me:
            self._asking.answered(to, word)
            return
        try:
            await self._send(word, to, None, None)
        except (BadInput, Closed):
            if to in channel.view and not channel.closed:
                raise
            self.unreachable += 1

    def close(self) -> None:
        name = self._channel.name
        self._asking.close(Closed(f"group {name!r} was closed before its question was answered"))


def failure(question: int, error: BaseException) -> Answered:
    """The answer of a handler that raised."""
    return Answered(question, FAILED, wrapped([type(error).__name__, str(error)[:ERROR_CHARS_MAX]]))


def _found(found: Answers | PluribusError) -> Answers:
    if isinstance(found, PluribusError):
        raise found
    return found


def _open_question(message: Message) -> Question:
    if not isinstance(message, Question):
        raise BadInput("this message asks nothing: look at m.asks before m.reply, or send a message of your own")
    if message.answered:
        raise BadInput("this question is answered already: a member answers once")
    return message
