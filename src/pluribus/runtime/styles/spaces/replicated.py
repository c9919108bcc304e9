"""The way to a replicated space: one machine, on the keepers' log or in the memory of the members.

Commands carry the identity of a session, so that a command that is repeated after a break is done once. A take that
finds no match stands in line in the machine; this side waits until the machine says that it was given a tuple
(``line.given``), and finishes. A read that finds nothing registers, looks once more, and waits for the event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import msgspec

from ....core.errors import BadInput, Closed, LeaseEnded, PluribusError, Refused, TransactionEnded, Undelivered
from ....group.sessions import FIRST_TIME, Command, SessionEntry
from ....spaces import words
from ....spaces.machine import SpaceMachine
from ....spaces.templates import Template
from ....spaces.values import Item, written_of
from ....spaces.words import Ended, Leased, Nothing, Outcome, Taken, Waiting
from ...machines.line import MachineLine
from .space import SpaceEvent, WriteResult, ended, microseconds, seconds, unpacked

OWNER_LEASE_US = 10_000_000
WAIT_S = 20.0
"""Seconds for which one question to the machine waits."""
SHOWN_S_MIN, SHOWN_S_MAX = 0.01, 0.5
"""Seconds between two looks at whether a hidden tuple is still there, at first and at most."""
WATCH_LEASE_S = 60.0
"""The lease of a read that waits."""
PUT_BACK_S = 0.5
"""Seconds after which a tuple that a full space refused is written again."""
UNDO_S = 5.0
"""Seconds for which a cancelled take waits until the tuples that it got in a transaction are there again, and for which
closing waits until all such tuples are, and until no take of this program stands in line."""

log = logging.getLogger(__name__)


class ReplicatedWay:
    """``owner`` identifies the waiting process; ``machine`` gives this process's own copy, if it has one."""

    kind = "replicated"

    def __init__(
        self,
        name: str,
        line: MachineLine[SessionEntry],
        owner: int,
        draw: Callable[[], int],
        machine: Callable[[], SpaceMachine | None],
    ) -> None:
        self.name = name
        self.line = line
        self._owner = owner
        self._draw = draw
        self._machine = machine
        self._session = draw()
        self._next = 0
        self._unsettled: dict[int, None] = {}
        self._undoing: set[asyncio.Task[None]] = set()
        self._away = 0
        """Tuples that cancelled takes got, and that a full space has refused."""
        self._takes: set[asyncio.Future[None]] = set()
        """Done when a take is over."""
        self._waiting: set[int] = set()
        """Takes that stand in line."""
        self._closing = False
        self._closed = False

    # Commands.

    async def call(self, command: words.Command) -> Outcome:
        """Have a command done once, however often it must be repeated."""
        self._next += 1
        number = self._next
        self._unsettled[number] = None
        settled = next(iter(self._unsettled))
        asked = Command(self._session, number, settled, FIRST_TIME, words.encode(command)).encoded()
        try:
            entry = await self.line.call(asked)
        finally:
            self._unsettled.pop(number, None)
        if not isinstance(entry, SessionEntry):
            raise Refused(f"the space {self.name!r}: {entry}")
        outcome = words.outcome_of(entry.result)
        if isinstance(outcome, words.Refused):
            raise Refused(f"the space {self.name!r} refused it: {outcome.reason}")
        if outcome == Ended("transaction"):
            raise self._over()
        return outcome

    def _over(self) -> TransactionEnded:
        return TransactionEnded(f"the transaction has ended in {self.name!r}: begin another")

    async def ask(self, question: words.Question, stale: bool = False) -> Outcome:
        machine = self._machine() if stale else None
        if machine is not None:
            outcome = machine.answer(question)
        else:
            outcome = words.outcome_of(await self.line.inspect(words.encode(question), stale=stale))
        if isinstance(outcome, words.Refused):
            raise Refused(f"the space {self.name!r} refused it: {outcome.reason}")
        if outcome == Ended("transaction"):
            raise self._over()
        return outcome

    async def write(self, items: list[Item], lease_s: float | None, transaction: int) -> WriteResult:
        outcome = await self.call(words.Write(items, microseconds(lease_s), transaction))
        assert isinstance(outcome, words.Written)
        return WriteResult(outcome.numbers, seconds(outcome.lease_us))

    async def take(
        self,
        template: Template,
        most: int,
        timeout: float | None,
        if_exists: bool,
        transaction: int,
        write: list[Item],
        lease_s: float | None,
    ) -> list[Item]:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._takes.add(over)
        try:
            return await self._take(template, most, timeout, if_exists, transaction, write, lease_s)
        finally:
            self._takes.discard(over)
            over.set_result(None)

    async def _take(
        self,
        template: Template,
        most: int,
        timeout: float | None,
        if_exists: bool,
        transaction: int,
        write: list[Item],
        lease_s: float | None,
    ) -> list[Item]:
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        lease_us = microseconds(lease_s)
        while True:
            consumer = self._draw()
            waits = timeout is None or timeout > 0
            command = words.Take(
                template,
                most,
                waits,
                consumer,
                self._owner,
                OWNER_LEASE_US,
                transaction,
                if_exists,
                False,
                write,
                lease_us,
            )
            outcome = await self._unless_cancelled(command, consumer, transaction)
            if isinstance(outcome, Taken):
                return outcome.items
            if isinstance(outcome, Nothing):
                return []
            assert isinstance(outcome, Waiting)
            self._waiting.add(consumer)
            if self._closing:
                self._release(consumer)
            try:
                late = await self._waited(consumer, outcome.epoch, deadline)
            finally:
                self._waiting.discard(consumer)
            finish = words.Finish(consumer, write, lease_us)
            outcome = await self._unless_cancelled(finish, consumer, transaction)
            if isinstance(outcome, Taken):
                return outcome.items
            if self._closing:
                raise self._gone()
            if late or if_exists:
                return []
            if isinstance(outcome, Ended) and transaction:
                await self.call(words.Take(template, transaction=transaction))  # says that it has ended

    async def _waited(self, consumer: int, epoch: int, deadline: float | None) -> bool:
        """Returns when the take was given a tuple, or is over; True when its time is over."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                left_s = WAIT_S if deadline is None else min(deadline - loop.time(), WAIT_S)
                if left_s <= 0:
                    return True
                told = await self.line.given(consumer, epoch, 0, wait_s=left_s)
                if told.given or told.ended:
                    return False
        except asyncio.CancelledError:
            self._release(consumer)
            raise

    def _release(self, consumer: int) -> None:
        """A waiting take is over, and what it was handed goes to the next."""
        self._undo(self.call(words.Release(consumer)))

    def _gone(self) -> Closed:
        return Closed(f"the space {self.name!r} is closed: open it again")

    async def _unless_cancelled(self, command: words.Take | words.Finish, consumer: int, transaction: int) -> Outcome:
        """If the caller is cancelled, the tuple that the command took is not lost: it is written again, in its
        transaction. A replacement stays: the two steps of undoing it would look to others like a take and a write of
        their own."""
        task = asyncio.ensure_future(self.call(command))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            undoing = self._undo(self._written_again(task, consumer, transaction, bool(command.write)))
            if transaction:  # which must not end before
                await asyncio.wait({undoing}, timeout=UNDO_S)
            raise

    async def _written_again(
        self, task: asyncio.Task[Outcome], consumer: int, transaction: int, replaced: bool
    ) -> None:
        outcome = await task
        if isinstance(outcome, Waiting):
            await self.call(words.Release(consumer))
        elif isinstance(outcome, Taken) and not replaced:
            by_lease: dict[int, list[Item]] = {}
            for at, item in enumerate(outcome.items):
                left_us = outcome.left_us[at] if outcome.left_us else words.FOR_EVER_US
                by_lease.setdefault(left_us, []).append(item)
            for left_us, items in by_lease.items():
                await self._put_back(words.Write(items, left_us, transaction))

    async def _put_back(self, write: words.Write) -> None:
        """Write tuples again, which the space may refuse while it is full."""
        told = False
        while True:
            try:
                await self.call(write)
                break
            except Refused as error:
                if not told:
                    told = True
                    self._away += len(write.items)
                    log.warning("%d tuples that a cancelled take got are not back yet: %s", len(write.items), error)
            except TransactionEnded:
                break  # they are back with its end
            except PluribusError as error:
                log.error("%d tuples that a cancelled take got may be lost: %s", len(write.items), error)
                break
            await asyncio.sleep(PUT_BACK_S)
        self._away -= len(write.items) if told else 0

    def _undo(self, work: Any) -> asyncio.Task[None]:
        async def done() -> None:
            with suppress(PluribusError):  # then its owner's lease ends it
                await work

        task = asyncio.get_running_loop().create_task(done())
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)
        return task

    # Reading.

    async def read(
        self, template: Template, timeout: float | None, if_exists: bool, transaction: int, stale: bool
    ) -> Item | None:
        found, hidden = await self._look(template, transaction, stale)
        if found is not None or timeout == 0 or (if_exists and not hidden):
            return found
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        number = self._draw()
        watch = words.Notify(number, template, microseconds(WATCH_LEASE_S), b"", transaction, True)
        outcome = await self.call(watch)
        assert isinstance(outcome, Leased)
        try:
            return await self._watched(template, number, outcome.epoch, deadline, if_exists, transaction)
        finally:
            self._undo(self.call(words.Forget(number)))

    async def _watched(
        self, template: Template, number: int, epoch: int, deadline: float | None, if_exists: bool, transaction: int
    ) -> Item | None:
        loop = asyncio.get_running_loop()
        after, pause_s = 0, SHOWN_S_MIN
        while True:
            found, hidden = await self._look(template, transaction, False)
            if found is not None or (if_exists and not hidden):
                return found
            left_s = WAIT_S if deadline is None else min(deadline - loop.time(), WAIT_S)
            if if_exists:  # nobody tells that a hidden tuple was taken for good
                left_s, pause_s = min(left_s, pause_s), min(2 * pause_s, SHOWN_S_MAX)
            if left_s <= 0:
                return None
            told = await self.line.given(number, epoch, after, wait_s=left_s)
            for given in told.given:
                after = given.number
                if not transaction:  # with one it has to be locked
                    return msgspec.msgpack.decode(given.note, type=words.Happened).item
            if told.ended:
                return (
                    None
                    if deadline is not None and loop.time() >= deadline
                    else await self._again(template, deadline, if_exists, transaction)
                )
            await self.call(words.Seen(number, 0, microseconds(WATCH_LEASE_S)))

    async def _again(
        self, template: Template, deadline: float | None, if_exists: bool, transaction: int
    ) -> Item | None:
        left_s = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0)
        return await self.read(template, left_s, if_exists, transaction, False)

    async def _look(self, template: Template, transaction: int, stale: bool) -> tuple[Item | None, bool]:
        """A match, if there is one; else whether there is one that is hidden, and may come back."""
        if transaction:
            outcome = await self.call(words.Take(template, transaction=transaction, keep=True))
        else:
            outcome = await self.ask(words.Find(template), stale)
        if isinstance(outcome, Taken):
            return outcome.items[0], False
        return None, isinstance(outcome, Nothing) and outcome.hidden

    async def page(self, template: Template, after: int, most: int, transaction: int) -> tuple[list[int], list[Item]]:
        outcome = await self.ask(words.Find(template, most, after, transaction))
        return (outcome.numbers, outcome.items) if isinstance(outcome, Taken) else ([], [])

    async def count(self, template: Template, transaction: int) -> int:
        outcome = await self.ask(words.Count(template, transaction))
        assert isinstance(outcome, words.Done)
        return outcome.count

    # Leases, events, transactions.

    async def renew(self, number: int, lease_s: float | None, item: Item) -> WriteResult:
        outcome = await self.call(words.Renew(number, microseconds(lease_s)))
        if not isinstance(outcome, Leased):
            raise ended(self.name, f"lease {number}")
        return WriteResult([number], seconds(outcome.lease_us))

    async def cancel(self, number: int, item: Item) -> None:
        if isinstance(await self.call(words.Cancel(number)), Ended):
            raise ended(self.name, f"lease {number}")

    async def notify(self, template: Template, lease_s: float | None, hand_back: bytes, transaction: int) -> Registered:
        number = self._draw()
        outcome = await self.call(words.Notify(number, template, microseconds(lease_s), hand_back, transaction))
        assert isinstance(outcome, Leased)
        return Registered(self, number, outcome.epoch, seconds(outcome.lease_us), hand_back)

    async def resume(self, number: int) -> Registered:
        outcome = await self.ask(words.Events(number, (1 << 63) - 1))
        if not isinstance(outcome, words.Told):
            raise ended(self.name, f"registration {number}")
        lease_s = seconds(outcome.lease_us)
        return Registered(self, number, outcome.epoch, lease_s, outcome.hand_back, outcome.seen)

    async def join(self, transaction: int, lease_s: float) -> float | None:
        """Let a transaction act in this space, or extend its lease there."""
        outcome = await self.call(words.Join(transaction, microseconds(lease_s)))
        assert isinstance(outcome, Leased)
        return seconds(outcome.lease_us)

    async def flush(self) -> None:
        if self._undoing:
            await asyncio.wait(set(self._undoing))

    async def close(self) -> None:
        self._closing = True
        for consumer in self._waiting:
            self._release(consumer)
        if under_way := {*self._undoing, *self._takes}:
            await asyncio.wait(under_way, timeout=UNDO_S)
        self.abandon()
        if self._away:
            raise Undelivered(f"{self._away} tuples that cancelled takes of {self.name!r} got are not back: it is full")

    def abandon(self) -> None:
        self._closed = True
        self.line.close()
        for task in self._undoing:
            task.cancel()

    def stats(self) -> dict[str, Any]:
        machine = self._machine()
        if machine is None:
            return {}
        told = machine.answer(words.Look())
        return dict(msgspec.structs.asdict(told))

    def validate(self) -> None:
        """The machine is validated by its host."""


class Registered:
    """A registration at a replicated space. Iterate it; ``space.resume(number)`` finds it again, also elsewhere."""

    def __init__(
        self, way: ReplicatedWay, number: int, epoch: int, granted_s: float | None, hand_back: bytes, seen: int = 0
    ) -> None:
        self._way = way
        self.number = number
        self.granted_s = granted_s
        self._epoch = epoch
        self._hand_back = unpacked(hand_back)
        self._after = 0
        self._seen = seen

    async def __aiter__(self) -> AsyncIterator[SpaceEvent]:
        """Events in their order. Asking for the next event acknowledges the one before. ``LeaseEnded`` when the
        registration is over."""
        while True:
            if self._way._closed:
                raise self._way._gone()
            told = await self._way.line.given(self.number, self._epoch, self._after, wait_s=WAIT_S)
            if told.ended:
                raise ended(self._way.name, f"registration {self.number}")
            for given in told.given:
                event = msgspec.msgpack.decode(given.note, type=words.Happened)
                missed = max(event.sequence - self._seen - 1, 0)
                self._after, self._seen = given.number, event.sequence
                yield SpaceEvent(event.sequence, written_of(event.item), self._hand_back, missed)
            if told.given:
                await self._way.call(words.Seen(self.number, self._seen))

    async def renew(self, lease: float | None) -> float | None:
        """Renew the lease. ``LeaseEnded`` if the registration is over."""
        if lease is None:
            raise BadInput("a registration is renewed for so many seconds: give a number")
        outcome = await self._way.call(words.Seen(self.number, self._seen, microseconds(lease)))
        if not isinstance(outcome, Leased):
            raise ended(self._way.name, f"registration {self.number}")
        self.granted_s = seconds(outcome.lease_us)
        return self.granted_s

    async def cancel(self) -> None:
        if isinstance(await self._way.call(words.Forget(self.number)), Ended):
            raise LeaseEnded(f"the registration {self.number} in {self._way.name!r} is over already")
