"""Questions from member to member in a group: asked, answered, and failed when the other member is gone.

``MemberLine`` does not read the group: the group's reader hands it the words that come (``take``), and the views.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any

from ...core.errors import BadInput, Closed, Excluded, Overflow, PluribusError
from ...core.limits import STORE_SUBMISSIONS_MAX
from ...wire import asking
from ...wire.asking import Answered, Arriving, Failed
from .group import Group

OUTBOX_BYTES_MAX = 64 << 20
"""Words that wait for one member; more are dropped, and said again later."""
ANSWER_S = 30.0
"""A question that is not answered by then counts as lost."""
SERVED_MAX = 4_096
"""Questions of other members that are being answered."""

log = logging.getLogger("pluribus")


class MemberLine:
    """``serve`` answers questions of other members; ``mark`` stands before every word on this line."""

    def __init__(self, group: Group, mark: bytes = b"") -> None:
        self.group = group
        self.serve: Callable[[Any, int], Awaitable[Any]] | None = None
        self.dropped = 0
        self._mark = mark
        self._waiting: dict[int, tuple[Any, int, asyncio.Future[Any]]] = {}
        self._numbers = 0
        self._outboxes: dict[int, _Outbox] = {}
        self._serving: dict[asyncio.Task[None], int] = {}
        """With who asked; in their order, which a set does not keep: a world must do the same every time."""

    def send(self, member: int, data: bytes) -> bool:
        """Send to a member, in order; false if too much waits already. What is sent is lost if the member goes."""
        outbox = self._outboxes.get(member)
        if outbox is None:
            outbox = self._outboxes[member] = _Outbox(self.group, member)
        if outbox.put(data):
            return True
        self.dropped += 1
        return False

    async def ask(self, member: int, request: Any) -> Any:
        """Ask a member; ``Closed`` if it goes before it has answered."""
        self._numbers += 1
        number = self._numbers
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (request, member, future)
        patience_s = ANSWER_S + float(getattr(request, "wait_s", None) or 0.0)
        timer = future.get_loop().call_later(patience_s, _unanswered, future)
        try:
            if not self.send(member, self._mark + asking.asked(number, request)):
                raise Overflow(f"{OUTBOX_BYTES_MAX:,} bytes wait for that member: ask again")
            return await future
        finally:
            timer.cancel()
            del self._waiting[number]

    def take(self, sender: int, data: bytes) -> None:
        """Handle a word, without its mark; ``MalformedFrame`` if it is none of this line."""
        word = asking.decode(data)
        if isinstance(word, Arriving):
            if len(self._serving) < SERVED_MAX and self.serve is not None:
                task = asyncio.ensure_future(self._answer(sender, word, self.serve))
                self._serving[task] = sender
                task.add_done_callback(self._serving.pop)
            else:
                refused = Closed("this member keeps nothing, or is asked too much: ask another one")
                self.send(sender, self._mark + asking.failed(word.number, refused))
        elif isinstance(word, Answered | Failed):  # nothing is pushed here: what waits is a question that is held
            waiting = self._waiting.get(word.number)
            if waiting is None or waiting[1] != sender or waiting[2].done():
                return
            if isinstance(word, Answered):
                waiting[2].set_result(asking.result_of(waiting[0], word))
            else:
                waiting[2].set_exception(asking.error_of(word))

    async def _answer(self, sender: int, asked: Arriving, serve: Callable[[Any, int], Awaitable[Any]]) -> None:
        try:
            answer = asking.answered(asked.number, await serve(asking.request_of(asked), sender))
        except PluribusError as error:
            answer = asking.failed(asked.number, error)
        except Exception as error:
            log.exception("a member failed with a question")
            answer = asking.failed(asked.number, error)
        self.send(sender, self._mark + answer)

    def viewed(self, members: Collection[int]) -> None:
        """These are in the group now."""
        for member in self._outboxes.keys() - set(members):
            self._outboxes.pop(member).close()
        self._fail(lambda member: member not in members, "the member is gone")
        for task in [task for task, sender in self._serving.items() if sender not in members]:
            task.cancel()  # a question that is held may hold a lease, too

    def abandon(self) -> None:
        for task in self._serving:
            task.cancel()
        for outbox in self._outboxes.values():
            outbox.close()
        self._fail(lambda member: True, "the bus was closed")

    def _fail(self, whom: Callable[[int], bool], why: str) -> None:
        for _, member, future in list(self._waiting.values()):
            if whom(member) and not future.done():
                future.set_exception(Closed(f"{why} before it answered: ask another one"))


def _unanswered(future: asyncio.Future[Any]) -> None:
    """Fail a question: it or its answer was lost, because too much waited or a member was cut off."""
    if not future.done():
        future.set_exception(Closed("the member did not answer: ask again"))


class _Outbox:
    """What waits for one member; a task sends it."""

    def __init__(self, group: Group, member: int) -> None:
        self._group = group
        self._member = member
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None

    def put(self, data: bytes) -> bool:
        if self._bytes + len(data) > OUTBOX_BYTES_MAX or len(self._queue) >= STORE_SUBMISSIONS_MAX:
            return False
        self._queue.append(data)
        self._bytes += len(data)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._send())
        return True

    async def _send(self) -> None:
        with suppress(BadInput, Closed, Excluded):  # it is gone, or we are
            while self._queue:
                data = self._queue.popleft()
                self._bytes -= len(data)
                await self._group.send(data, to=self._member)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
