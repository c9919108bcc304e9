"""A carrier: the tasks between a pure protocol and the group of the bus that carries its words.

One task reads the group. One drives the protocol: it sends the protocol's words, waits until something is due or
another task wakes it, and ticks. A third watches for new members. The protocol gives its next words only when the words
before were sent, so the words that wait are bounded.

A client is in the group through a guest at its member, which is gone when the connection breaks. Then the carrier joins
the group again, as another guest; words that were not sent are dropped, as if the network had lost them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from ....conversations.words import encode
from ....core.errors import Closed, Excluded, PluribusError, Uncertain
from ....core.ports import Clock
from ...group.group import Group

log = logging.getLogger(__name__)

IDLE_S_MIN = 0.001
IDLE_S_MAX = 3_600.0
LATE_S = 0.02
PAUSE_S, PAUSE_S_MAX = 0.1, 5.0
"""Seconds between two attempts to join the group again, at first and at most."""
LISTEN_TURNS = 256
"""Turns of the loop, at most, for which a member that was late reads before it acts."""


class CarriedProtocol(Protocol):
    """The methods that a carrier needs of a protocol."""

    @property
    def out(self) -> deque[Any]: ...
    @property
    def due_at(self) -> float: ...
    def heard(self, sender: int, word: Any, now: float) -> None: ...
    def tick(self, now: float) -> None: ...
    def newcomer(self, now: float) -> None: ...


class ProtocolCarrier:
    """Call ``wake`` after every call of the protocol. ``done`` is called when the protocol may have events for the
    program. ``join`` joins the group again, and ``joined`` is called with it; ``Closed`` from ``join`` is the end."""

    def __init__(
        self,
        group: Group,
        part: CarriedProtocol,
        decode: Callable[[bytes], Any],
        clock: Clock,
        done: Callable[[], None],
        join: Callable[[], Awaitable[Group]],
        joined: Callable[[Group], None],
    ) -> None:
        self.group = group
        self.malformed = 0
        self._part = part
        self._decode = decode
        self._clock = clock
        self._done = done
        self._join = join
        self._joined = joined
        self._ended = False
        self._woken = asyncio.Event()
        self._sent = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._begin()

    def _begin(self) -> None:
        self._tasks = [asyncio.create_task(work()) for work in (self._read, self._drive, self._watch)]
        for task in self._tasks:
            task.add_done_callback(self._ended_by)

    def wake(self) -> None:
        self._sent.clear()
        self._woken.set()

    def _ended_by(self, task: asyncio.Task[None]) -> None:
        """A task that failed would leave this member silent or deaf, and nobody awaits it."""
        if task.cancelled() or self._ended or task not in self._tasks:
            return
        error = task.exception()
        if isinstance(error, Closed | Excluded) or (error is None and self.group.closed):
            for one in self._tasks:
                one.cancel()
            self._tasks = [asyncio.create_task(self._again())]
            self._tasks[0].add_done_callback(self._ended_by)
        elif error is not None:
            log.error("this member takes no part in %r any more", self.group.name, exc_info=error)
            self._ended = True
            self._sent.set()

    async def sent(self) -> None:
        """Returns when no word waits to be sent, or none will be sent any more."""
        while self._part.out and not self._ended and not self.group.closed:
            self._sent.clear()
            await self._sent.wait()

    async def _again(self) -> None:
        """Join the group again."""
        self._sent.set()
        pause_s = PAUSE_S
        while not self._ended:
            try:
                self.group = await self._join()
                break
            except Closed:
                self._ended = True
                return
            except (PluribusError, TimeoutError) as error:
                log.debug("%r cannot be joined again yet: %s", self.group.name, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
        self._part.out.clear()
        self._joined(self.group)
        self._begin()

    async def _read(self) -> None:
        async for message in self.group:
            try:
                word = self._decode(message.body)
            except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
                self.malformed += 1
                continue
            self._part.heard(int(message.sender), word, self._clock.now())
            self._done()
            self._woken.set()

    async def _drive(self) -> None:
        while not self.group.closed:
            while self._part.out:
                word = self._part.out.popleft()
                try:
                    await self.group.send(encode(word))
                except Closed:
                    self._sent.set()
                    return
                except Uncertain as error:  # the protocol loses no message with a word
                    log.debug("a word of %r may not have been sent: %s", self.group.name, error)
                except PluribusError:
                    log.exception("a word of %r could not be sent", self.group.name)
            self._sent.set()
            self._woken.clear()
            delay_s = min(max(self._part.due_at - self._clock.now(), 0.0), IDLE_S_MAX)
            timer = self._clock.call_later(max(delay_s, IDLE_S_MIN), self._woken.set)
            await self._woken.wait()
            timer.cancel()
            if self._clock.now() - self._part.due_at > LATE_S:
                await self._listen()
            if self._clock.now() >= self._part.due_at:
                self._part.tick(self._clock.now())
                self._done()

    async def _listen(self) -> None:
        """Read the words that have come. A member that had no processor for a while would otherwise repeat words that
        others have sent in that time: their words wait to be read, and make its own unnecessary."""
        for _ in range(LISTEN_TURNS):
            await asyncio.sleep(0)
            if not self.group.has_unread:
                return

    async def _watch(self) -> None:
        known: set[int] = set()
        async for view in self.group.views():
            members = {int(member) for member in view.members}
            if members - known - {int(self.group.me)}:
                self._part.newcomer(self._clock.now())
                self._woken.set()
            known = members
            self._done()

    async def close(self) -> None:
        self.abandon()
        await self.group.close()

    def abandon(self) -> None:
        self._ended = True
        self._sent.set()
        for task in self._tasks:
            task.cancel()
