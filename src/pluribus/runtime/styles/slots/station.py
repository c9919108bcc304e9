"""Words between a group and the state machines that live on this member: routers and occupants of one software bus.

A machine is fed words and time, and leaves words in ``out``. The station hands these to the group, and to the other
machines of this member, because the group does not deliver a member's own messages. One timer serves all machines.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ....core.errors import BadInput, PluribusError, Refused, TooLarge
from ....core.ids import ALL
from ....core.ports import Timer
from ....slots.guests import about
from ....slots.words import DATA_PATH, DENIED, WORDS, NegAck, Word

if TYPE_CHECKING:
    from ...bus import Bus
    from ...group.group import Group

log = logging.getLogger(__name__)

GROUP = "slots"
"""The group of all software buses of a bus: routers advertise there. The bus NAME has the group ``slots/NAME``."""
_WORDS = frozenset(WORDS)
WORD_BYTES = 4_096
"""Bytes of a SEND_DATA besides its body, at most: it names the receivers that have not acknowledged."""

Tap = Callable[[int, int, Word], None]
"""Called with each word: its sender, its receiver, and the word."""


class SlotProtocol(Protocol):
    out: list[tuple[int, Word]]

    @property
    def due_at(self) -> float | None: ...

    def take(self, sender: int, word: Word, now: float) -> None: ...

    def tick(self, now: float) -> None: ...

    def validate(self) -> None: ...


class Station:
    """One software bus on one member. ``begin`` starts it; it ends with its last machine, or with the bus."""

    def __init__(self, bus: Bus, group: Group) -> None:
        self.group = group
        self.me = int(group.me)
        self.clock = bus.clock
        self.machines: list[SlotProtocol] = []
        self.unsent = 0
        self.said: Counter[type] = Counter()
        """By type: how many words machines of this member sent. This is the cost of the protocol, counted at the
        group."""
        self.taps: list[Tap] = []
        self.faulty = 0
        self.refusal = ""
        """The reason why the access list refused the last word of this client."""
        self.closed = False
        self._local: deque[tuple[int, Word, SlotProtocol | None]] = deque()
        self._outgoing: deque[tuple[int, Word]] = deque()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._flushing = self._sending = False
        self._wake = asyncio.Event()
        self._emptied = asyncio.Event()
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._pump())]
        for task in self._tasks:
            task.add_done_callback(_ended)

    def now(self) -> float:
        return self.clock.now()

    def add(self, machine: SlotProtocol) -> None:
        self.machines.append(machine)
        self.flush()

    def remove(self, machine: SlotProtocol) -> None:
        if machine in self.machines:
            self.flush()
            self.machines.remove(machine)

    @property
    def cost(self) -> int:
        """Words of the data path that machines of this member sent."""
        return sum(self.said[word] for word in DATA_PATH)

    def check_size(self, size: int) -> None:
        """``TooLarge`` for a body that a group of this stack does not carry in one piece."""
        longest = self.group.longest_bytes - WORD_BYTES
        if size > longest and not self.group.cuts:
            raise TooLarge(
                f"a message of {size:,} bytes exceeds the {longest:,} that this network carries in one piece: "
                "connect everybody with stack='views', which cuts it, or send it in parts"
            )

    def flush(self) -> None:
        """Send the words of the machines, and wake up when the next machine is due."""
        if self._flushing or self.closed:
            return
        self._flushing = True
        try:
            now = self.now()
            while True:
                for machine in self.machines:
                    due_at = machine.due_at
                    if due_at is not None and due_at <= now:
                        machine.tick(now)
                    self._carry(machine)
                if not self._local:
                    break
                while self._local:
                    self._deliver(*self._local.popleft(), now)
        finally:
            self._flushing = False
        self._arm(now)

    def _carry(self, machine: SlotProtocol) -> None:
        said, machine.out = machine.out, []
        for to, word in said:
            self.said[type(word)] += 1
            for tap in self.taps:
                tap(self.me, to, word)
            if to in (ALL, self.me):
                self._local.append((self.me, word, machine))
            if to != self.me:
                self._outgoing.append((to, word))
        if said:
            self._wake.set()

    def _deliver(self, sender: int, word: Word, said_by: SlotProtocol | None, now: float) -> None:
        for machine in list(self.machines):
            if machine is not said_by:
                try:
                    machine.take(sender, word, now)
                except Exception:  # a machine survives any word
                    self.faulty += 1
                    log.exception("a word %s of a software bus could not be handled", type(word).__name__)

    def _arm(self, now: float) -> None:
        due = min((at for machine in self.machines if (at := machine.due_at) is not None), default=None)
        if due is None:
            return
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self.clock.call_later(max(due - now, 0.001), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.flush()

    async def _read(self) -> None:
        while not self.group.closed:
            try:
                messages = await self.group.receive_many()
            except PluribusError:
                return
            now = self.now()
            for message in messages:
                if type(message.body) in _WORDS:
                    for tap in self.taps:
                        tap(int(message.sender), self.me, message.body)
                    self._deliver(int(message.sender), message.body, None, now)
            self.flush()

    async def _pump(self) -> None:
        outgoing, group = self._outgoing, self.group
        while True:
            self._wake.clear()
            self._sending = True
            while outgoing:
                to, word = outgoing.popleft()
                try:
                    await group.send(word, to=None if to == ALL else to)
                except BadInput:  # it is not in the view, or too long; a slot that waits for an answer asks again
                    self.unsent += 1
                except Refused as error:  # by the door of this client: the sender is told as a router would tell it
                    self.refusal = str(error)
                    refused = NegAck(about(word), DENIED, self.refusal)
                    self._local.append((self.me, refused, None))
                    self.flush()
                except PluribusError:
                    outgoing.clear()
                    break
            self._sending = False
            self._emptied.set()
            await self._wake.wait()

    async def drained(self) -> None:
        """Return when all words are with the group."""
        while (self._outgoing or self._sending) and not self.closed and not self.group.closed:
            self._emptied.clear()
            await self._emptied.wait()

    async def close(self) -> None:
        self.flush()
        await self.drained()
        self.abandon()
        await self.group.close()

    def abandon(self) -> None:
        self.closed = True
        self._emptied.set()
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def validate(self) -> None:
        for machine in self.machines:
            machine.validate()
        assert not self.faulty, f"{self.faulty} words could not be handled"


def _ended(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a software bus stopped on this member", exc_info=error)
