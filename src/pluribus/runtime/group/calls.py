"""Serving an object to a group: calls run concurrently; each is answered with what its method returned or raised.

Calls begin in the order in which the group delivers them. Coroutines are awaited on the loop, plain functions run in
threads, so a slow call does not hold up others. If the object is served ``one_by_one``, each call begins when the one
before has ended, which replicas of one state need. At most ``CALLS_AT_ONCE_MAX`` calls run at a time. Further calls
wait and are not consumed, so that callers wait for room.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ...core.errors import BadInput, Closed, MalformedFrame, PluribusError
from ...core.frame import Frame
from ...core.limits import CALLS_AT_ONCE_MAX
from ...group.asking import Answers, Replies, checked_replies
from ...group.calls import arguments_of, called, methods_of
from ...group.channel import Channel
from ...wire.questions import ABSENT, GOOD, Answered, Called, words_of, wrapped
from ..loop.futures import in_a_thread
from .asking import GroupQuestions, failure

log = logging.getLogger(__name__)


class GroupCalls:
    """One member's part in the calls of one group: serving and calling."""

    def __init__(self, channel: Channel, asker: GroupQuestions, consumed: Callable[[], None]) -> None:
        self._channel = channel
        self._asker = asker
        self._consumed = consumed
        self._methods: dict[str, Callable[..., Any]] = {}
        self._at_once = CALLS_AT_ONCE_MAX
        self._frames: deque[Frame] = deque()
        self._calls: deque[tuple[int, Called]] = deque()
        self._running: dict[asyncio.Task[None], None] = {}
        """In their order, which a set does not keep: a world must do the same every time."""
        self._scheduled = False
        channel.on_call = self._arrived

    @property
    def group(self) -> str:
        return self._channel.name

    def serve(self, served: object | None, names: Collection[str] | None, *, one_by_one: bool) -> None:
        if served is not None and self._channel.state is not None:
            raise BadInput(
                f"group {self.group!r} has a state, for which calls do not wait: serve in a group without one"
            )
        self._methods = {} if served is None else methods_of(served, names)
        self._at_once = 1 if one_by_one else CALLS_AT_ONCE_MAX

    async def call(
        self,
        method: str,
        args: Sequence[Any],
        named: Mapping[str, Any],
        replies: Replies,
        timeout: float | None,
        to: int | None,
    ) -> Answers:
        word = called(self._channel.new_question(), method, args, named)
        return await self._asker.awaited(word, checked_replies(replies), timeout, to)

    def close(self) -> None:
        """Nobody waits for these calls any more."""
        self._frames.clear()
        self._calls.clear()
        try:
            current = asyncio.current_task()
        except RuntimeError:  # no loop runs: nothing of ours does
            return
        for task in self._running:
            if task is not current:  # a call may close its own group
                task.cancel()

    def _arrived(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._work_soon()

    def _work_soon(self) -> None:
        """Work later in this turn of the loop, so that a program that has just joined can serve an object first."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._scheduled = False
        while len(self._running) < self._at_once and self._next():
            sender, call = self._calls.popleft()
            task = asyncio.get_running_loop().create_task(self._answer(sender, call))
            self._running[task] = None
            task.add_done_callback(self._ended)

    def _next(self) -> bool:
        """Whether there is a call to work on."""
        while not self._calls and self._frames:
            frame = self._frames.popleft()
            try:
                self._calls.extend((frame.sender, word) for word in words_of(frame))
            except MalformedFrame:
                self._channel.malformed += 1
            self._channel.pass_over(frame)
            if self._channel.must_report:
                self._consumed()
        return bool(self._calls)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if self._calls or self._frames:
            self._work_soon()

    async def _answer(self, sender: int, call: Called) -> None:
        try:
            await self._asker.give(sender, await self._outcome(call))
        except Closed:
            pass  # together with everybody who could have been told
        except PluribusError as error:  # the answer could not be sent: too large, for example
            await self._asker.give(sender, failure(call.question, error))

    async def _outcome(self, call: Called) -> Answered:
        if not self._methods:
            return Answered(call.question, ABSENT)
        method = self._methods.get(call.method)
        try:
            if method is None:
                raise BadInput(
                    f"no method {call.method!r} is exposed here: there are {', '.join(sorted(self._methods))}"
                )
            args, named = arguments_of(call)
            waits = inspect.iscoroutinefunction(method)
            result = await (method(*args, **named) if waits else in_a_thread(method, *args, **named))
            return Answered(call.question, GOOD, wrapped(result))
        except Exception as error:  # the caller's to handle
            log.debug("the call of %r in %r failed", call.method, self._channel.name, exc_info=True)
            return failure(call.question, error)
