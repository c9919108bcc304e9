"""A queue as a program holds it: ``send`` and ``receive``, browsing, statistics, settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from ....core.errors import Closed, Refused, TooLarge, Uncertain
from ....core.ids import MessageId, checked_name
from ....filters import Filter
from ....group.host.demand import UNLIMITED
from ....queues import batch, words
from ....queues.machine import Queue
from ....queues.words import PRIORITY, REFUSED, Outcome, Settings, Stats
from ....wire.bodies import BYTES, encode_body
from ...machines.line import MachineLine
from ...machines.machines import Machines
from ..style import Style
from ..tables.face import ROWS_MAX, TIMEOUT_S
from .arriving import transformed
from .catalogue import MACHINE, find, listed
from .consumer import QueueConsumer
from .looking import PAGE, look
from .message import Browsed, QueueMessage
from .options import checked_credit, message_of, selector_of, settings_of
from .outgoing import OutgoingMessage, extra_of
from .receiving import Handler, Messages, Receiving, Singles, all_settled, call_with
from .sender import Sender, encoded_properties
from .stats import QueueStats

if TYPE_CHECKING:
    from ....tables.result import SqlTable
    from ...bus import Bus

CREDIT = 32
"""Messages that an iterator or a call-back fetches ahead, by default."""
CREDIT_BYTES = 4 << 20
LEASE_S = 10.0
"""Seconds for which a process may be silent before the messages that it holds are delivered to others."""
STILL = ", and it is still being sent: wait longer, or see `pluribus keepers ls` and what the keepers logged"
LONG_BYTES = 1 << 20
"""Bodies that are longer are sent in pieces."""
PIECE_BYTES = 512 << 10
BODY_BYTES_MAX = 100 << 20

H = TypeVar("H", bound=Callable[[Any], Any])
Progress = Callable[[int], object]


class Queues(Style):
    """All queues that one bus has open."""

    on_clients: ClassVar[str] = "pluribus.runtime.styles.queues.queue:Queues"

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._queues: dict[tuple[str, bool], MessageQueue] = {}

    async def open(
        self, name: str, durable: bool, given: Settings | None, timeout: float | None, *, create: bool = True
    ) -> MessageQueue:
        checked_name(name, "the queue")
        found = self._queues.get((name, durable))
        if found is None or found.closed:
            if not create:
                await find(self.bus, name, durable, timeout)
            machines: Machines = self.bus._style(Machines)
            line = await machines.open(MACHINE + name, Queue, Outcome, durable=durable, timeout=timeout)
            found = self._queues[(name, durable)] = MessageQueue(self.bus, name, durable, line)
        if given is not None:
            await found.configured(words.Configure(given), timeout)
        return found

    async def listed(self, timeout: float | None) -> list[str]:
        return await listed(self.bus, timeout)

    def opened(self, name: str, durable: bool) -> MachineLine[Outcome] | None:
        """The line to a queue that is open here."""
        found = self._queues.get((name, durable))
        return None if found is None or found.closed else found._line

    async def drain(self, timeout: float) -> None:
        for queue in self._queues.values():
            await queue.drain(timeout)

    async def close(self) -> None:
        for queue in list(self._queues.values()):
            await queue.close()

    def abandon(self) -> None:
        for queue in self._queues.values():
            queue.abandon()


class MessageQueue:
    """Made by ``await bus.queue(name)``. Several tasks may use every method at once."""

    def __init__(self, bus: Any, name: str, durable: bool, line: MachineLine[Outcome]) -> None:
        self.name = name
        self.durable = durable
        self._bus = bus
        self._line = line
        self.line_name = line.name
        self._numbers: Callable[[], int] = bus.durable.new_number
        self._sender = Sender(line, self._numbers, bus.durable.wall)
        self._singles: dict[bytes, Singles] = {}
        """By selector: the consumer that all single receives share."""
        self._consumers: dict[QueueConsumer, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: tuple[int, Stats] | None = None
        self._chain: str | None = None
        self.closed = False

    # Sending.

    async def send(
        self,
        body: Any,
        *,
        priority: int = PRIORITY,
        ttl: float | None = None,
        delay: float | None = None,
        properties: Mapping[str, Any] | None = None,
        key: str = "",
        id: str = "",
        correlation: str = "",
        reply_to: str = "",
        durable: bool = True,
        timeout: float | None = None,
    ) -> MessageId:
        """Put a message into the queue; returns when it is on the disks of most voters, or, in a queue in memory, at
        most members of the group.

        ``priority`` is 0 to 9, the highest first. The message expires after ``ttl`` seconds, and is not delivered
        before ``delay`` seconds. Selectors see ``properties``. Messages of one ``key`` are delivered in order, one at a
        time. A message with an ``id`` that was sent lately is dropped as a duplicate. ``durable=False`` returns before
        the message is on any disk: it may be lost in a crash. ``Uncertain`` after ``timeout`` seconds: the message is
        still sent, if that is possible. ``Refused`` if the queue is full and was made with ``full="refuse"``.
        """
        self._check_open()
        message = await self._outgoing(body, priority, ttl, delay, properties, key, id, correlation, reply_to)
        if not durable:
            return self._sender.put_soon(message)
        done, identity = self._sender.put(message)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(done)
        except TimeoutError:
            late = f"the queue {self.name!r} did not confirm the message in {timeout:g} s{STILL}"
            raise Uncertain(late, identity) from None
        return identity

    async def pass_on(self, message: OutgoingMessage) -> None:
        """Send a message that is encoded already; returns when it is confirmed."""
        self._check_open()
        await self.stage(message)
        done, _ = self._sender.put(message)
        await asyncio.shield(done)

    async def send_many(self, bodies: Iterable[Any], *, timeout: float | None = None) -> list[MessageId]:
        """Send messages without options, in order; returns when all are confirmed."""
        self._check_open()
        sent = [self._sender.put(await self._outgoing(body)) for body in bodies]
        waiting = {done for done, _ in sent}
        if waiting:
            done, late = await asyncio.wait(waiting, timeout=timeout)
            if late:
                raise Uncertain(f"the queue {self.name!r} did not confirm all messages in {timeout:g} s{STILL}")
            for one in done:
                one.result()
        return [identity for _, identity in sent]

    def send_soon(
        self,
        body: Any,
        *,
        priority: int = PRIORITY,
        ttl: float | None = None,
        delay: float | None = None,
        properties: Mapping[str, Any] | None = None,
        key: str = "",
        id: str = "",
        correlation: str = "",
        reply_to: str = "",
    ) -> MessageId:
        """Send without waiting; ``flush`` waits for all such messages, and raises their failure."""
        self._check_open()
        if (
            type(body) is bytes
            and len(body) <= LONG_BYTES
            and priority == PRIORITY
            and not (ttl or delay or properties or key or id or correlation or reply_to)
        ):
            return self._sender.put_soon(OutgoingMessage(BYTES, body))
        kind, encoded = encode_body(body)
        if len(encoded) > LONG_BYTES:
            raise TooLarge(f"a body of {len(encoded):,} bytes is sent in pieces: await send(...)")
        return self._sender.put_soon(
            message_of(kind, encoded, priority, ttl, delay, properties, key, id, correlation, reply_to)
        )

    async def flush(self) -> None:
        """Returns when everything that was sent is confirmed."""
        await self._sender.flush()

    async def _outgoing(
        self,
        body: Any,
        priority: int = PRIORITY,
        ttl: float | None = None,
        delay: float | None = None,
        properties: Mapping[str, Any] | None = None,
        key: str = "",
        id: str = "",
        correlation: str = "",
        reply_to: str = "",
    ) -> OutgoingMessage:
        kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
        message = message_of(kind, encoded, priority, ttl, delay, properties, key, id, correlation, reply_to)
        await self.stage(message)
        return message

    async def chain(self) -> str:
        """The chain by which the queue transforms arriving messages; the queue is asked once. ``Sender`` learns it by
        itself."""
        if self._chain is None:
            self._chain = (await self._now()).settings.transform
        return self._chain

    def forget_chain(self) -> None:
        self._chain = None

    async def _now(self) -> Stats:
        return _stats(await self._line.inspect(words.encode(words.Count()), timeout=None))

    async def stage(self, message: OutgoingMessage) -> None:
        """Send a long body ahead of its message, in pieces; the message then names them."""
        encoded = message.body
        if len(encoded) <= LONG_BYTES:
            return
        if len(encoded) > BODY_BYTES_MAX:
            raise TooLarge(
                f"a body of {len(encoded):,} bytes: a message has at most {BODY_BYTES_MAX:,}; send it in parts"
            )
        upload = self._numbers()
        pieces = range(0, len(encoded), PIECE_BYTES)
        for number, at in enumerate(pieces):
            stage = words.Stage(upload, number, encoded[at : at + PIECE_BYTES])
            await self._do(words.encode(stage))
        message.body, message.upload = b"", (upload, len(pieces))

    # Receiving.

    def receive(self, where: str | Filter | None = None, timeout: float | None = None) -> Receiving:
        """One message. ``m = await q.receive()`` is None if none came in ``timeout`` seconds; 0 does not wait. ``async
        with q.receive() as m:`` settles the message at the end of the block, and gives it back if the block raises."""
        self._check_open()
        return Receiving(self, selector_of(where), timeout)

    def messages(
        self,
        where: str | Filter | None = None,
        *,
        credit: int = CREDIT,
        credit_bytes: int = CREDIT_BYTES,
        exclusive: bool = False,
    ) -> Messages:
        """An iterator over messages as they come: ``async with q.messages() as messages: async for m in messages``.

        Asking for the next message settles the one before, unless that one is settled already. ``credit`` messages, or
        ``credit_bytes`` bytes of them, are fetched ahead. ``exclusive``: no other consumer may receive from the queue.
        """
        self._check_open()
        return Messages(self, selector_of(where), checked_credit(credit), credit_bytes, exclusive)

    async def __aiter__(self) -> AsyncIterator[QueueMessage[Any]]:
        async with self.messages() as found:
            async for message in found:
                yield message

    def on(
        self, where: str | Filter | None = None, *, credit: int = CREDIT, exclusive: bool = False
    ) -> Callable[[H], H]:
        """A decorator: the function is called with every message. If it returns, the message is settled; if it raises,
        the message is given back."""

        def decorated(call: H) -> H:
            self.call(call, where, credit=credit, exclusive=exclusive)
            return call

        return decorated

    def call(
        self, handler: Handler, where: str | Filter | None = None, *, credit: int = CREDIT, exclusive: bool = False
    ) -> asyncio.Task[None]:
        """Call a function with every message, one after another, until the returned task is cancelled."""
        messages = self.messages(where, credit=credit, exclusive=exclusive)
        task = asyncio.ensure_future(call_with(messages, handler))
        self.ends_with_it(task)
        return task

    def ends_with_it(self, task: asyncio.Task[None]) -> None:
        """Cancel the task when the queue is closed."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def arrived(self, where: str | Filter | None = None, timeout: float | None = None) -> bool:
        """True when a message is there that a receive would get now; the message stays in the queue. False after
        ``timeout``."""
        message = await self.receive(where, timeout)
        if message is None:
            return False
        await message.release()
        return True

    async def ack(self, messages: Iterable[QueueMessage[Any]]) -> None:
        """Settle several messages together, in one command. ``LeaseEnded`` names the first that is not held any
        more."""
        await all_settled(one.ack() for one in messages)

    async def nack(self, messages: Iterable[QueueMessage[Any]], delay: float | None = None) -> None:
        """Give several messages back together."""
        await all_settled(one.nack(delay) for one in messages)

    async def reject(self, messages: Iterable[QueueMessage[Any]], reason: str = "") -> None:
        """Make several messages dead letters."""
        await all_settled(one.reject(reason) for one in messages)

    async def extend(self, messages: Iterable[QueueMessage[Any]], seconds: float) -> None:
        """Extend the leases of several messages: hold them for so many seconds from now on."""
        await all_settled(one.extend(seconds) for one in messages)

    def _owner(self) -> int:
        """The identity that has the lease. In a queue in memory it is a member's: the consumers of a client live as
        long as the client's member."""
        line = getattr(self._bus, "line", None)
        return int(self._bus.me) if self.durable or line is None else int(line.member)

    async def _consumer(
        self, selector: bytes, things: int, size: int, want: int = UNLIMITED, exclusive: bool = False
    ) -> QueueConsumer:
        for single in list(self._singles.values()) if exclusive else ():
            await single.leave()
        numbered = (self._numbers(), self._owner, LEASE_S)
        consumer = QueueConsumer(self._line, *numbered, selector, exclusive, self.ends_with_it)
        self._consumers[consumer] = None
        try:
            await consumer.open(things, size, want)
        except BaseException:  # it may be attached all the same
            self._consumers.pop(consumer, None)
            consumer.leave()
            raise
        return consumer

    def _single(self, selector: bytes) -> Singles:
        found = self._singles.get(selector)
        if found is None:
            found = self._singles[selector] = Singles(self, selector)
        return found

    # Looking, and administration.

    async def browse(
        self, where: str | Filter | None = None, *, dead: bool = False, limit: int | None = None
    ) -> AsyncIterator[Browsed]:
        """Messages in the order of sending, without taking them; or the dead letters."""
        selector, start, left = selector_of(where), 0, limit
        while left is None or left > 0:
            question = words.Look(start, PAGE if left is None else min(left, PAGE), selector, dead)
            looked = await look(self._line, question)
            handles = [(one.row, one.place, one.piece) for one in looked.found]
            bodies = await self._line.bodies(handles, None) if handles else []
            for seen, body in zip(looked.found, bodies, strict=True):
                pieces = [(row, place, 0) for row, place in seen.pieces]
                parts = await self._line.bodies(pieces, None) if pieces and body is not None else []
                if body is None or None in parts:  # it was settled meanwhile
                    continue
                yield Browsed(seen, body, b"".join(one for one in parts if one is not None) if pieces else None)
                left = None if left is None else left - 1
            start = looked.then
            if not start:
                return

    async def held_by(self, transaction: int) -> list[int]:
        """Numbers of the messages that are kept for a prepared transaction."""
        asked = words.encode(words.Held(transaction))
        return msgspec.msgpack.decode(await self._line.inspect(asked, timeout=None), type=list[int])

    async def kept(self, numbers: Sequence[int]) -> list[QueueMessage[Any]]:
        """The messages with these numbers that are still there, without taking them."""
        found: list[QueueMessage[Any]] = []
        for at in range(0, len(numbers), PAGE):
            question = words.Where(list(numbers[at : at + PAGE]))
            stood = msgspec.msgpack.decode(
                await self._line.inspect(words.encode(question), timeout=None),
                type=list[tuple[int, int, int, int, list[tuple[int, int]]]],
            )
            for thing, row, place, piece, pieces in stood:
                handles = [(row, place, piece), *((row, place, 0) for row, place in pieces)]
                packed, *rest = await self._line.bodies(handles, None)
                if packed is not None and None not in rest:
                    long = b"".join(one for one in rest if one is not None) if pieces else None
                    found.append(QueueMessage(None, thing, 1, packed, long))
        return found

    async def sql(self, statement: str, *, rows_max: int = ROWS_MAX, timeout: float = TIMEOUT_S) -> SqlTable:
        """The rows of a SELECT in which this queue's name is a table. See ``bus.sql``."""
        from ..tables.tables import Tables

        self._check_open()
        tables: Tables = self._bus._style(Tables)
        return await tables.select(statement, {self.name: self}, rows_max, timeout, True)

    async def stats(self) -> QueueStats:
        """The state of the queue now; rates are averages since the last call."""
        now = await self._now()
        loop_us = int(asyncio.get_running_loop().time() * 1e6)
        rates = (0.0, 0.0)
        if self._last is not None and loop_us > self._last[0]:
            seconds, before = (loop_us - self._last[0]) / 1e6, self._last[1]
            rates = ((now.sent - before.sent) / seconds, (now.settled - before.settled) / seconds)
        self._last = (loop_us, now)
        return QueueStats(self.name, now, *rates)

    async def purge(self, *, dead: bool = False, progress: Progress | None = None) -> int:
        """Remove every message that no consumer holds, or all dead letters; returns how many there were."""
        end = (await self.stats()).state.sent  # at least as many as were ever numbered
        return await self._in_steps(lambda start: words.Purge(max(end, 1), dead, start), progress)

    async def redrive(self, limit: int | None = None, *, progress: Progress | None = None) -> int:
        """Dead letters become messages again, with no tries counted, the oldest first; returns how many. A dead letter
        that could not be transformed when it arrived is transformed now, or stays. The command names them, so repeating
        it redrives none twice; messages that die meanwhile are for the next call."""
        total, start, named = 0, 0, 0
        self._chain = None
        chain = await self.chain()
        while limit is None or named < limit:
            most = PAGE if limit is None else min(limit - named, PAGE)
            question = words.Look(start, most, selector_of(None), dead=True)
            looked = await look(self._line, question)
            if looked.found:
                raw = [one.thing for one in looked.found if chain and one.reason.startswith(words.NOT_TRANSFORMED)]
                things = [one.thing for one in looked.found if one.thing not in set(raw)]
                named += len(looked.found)
                if things:
                    total += (await self._do(words.encode(words.Redrive(0, things)))).number
                for message in await self.kept(raw):
                    total += await self._remake(message, chain)
            if progress is not None:
                progress(total)
            start = looked.then
            if not start:
                break
        return total

    async def _remake(self, message: QueueMessage[Any], chain: str) -> int:
        """Transform a dead letter that could not be transformed when it arrived, by the queue's present chain; 0 if it
        still cannot be transformed."""
        kind, encoded = encode_body(message.body)
        texts = (message.key, message.id, message.correlation, message.reply_to)
        properties = encoded_properties(message.properties)
        made = transformed(OutgoingMessage(kind, encoded, message.priority, 0, 0, *texts, properties), chain)
        if made.failure:
            return 0
        packed = batch.pack(
            self._numbers(), 1, int(message.sent * 1e6), made.kind, [made.body], extra_of([made], chain)
        )
        return (await self._do(words.encode(words.Remake([message.number], packed)))).number

    async def _in_steps(self, step: Callable[[int], words.Command], progress: Progress | None) -> int:
        total, start = 0, 0
        while True:
            outcome = await self._do(words.encode(step(start)))
            total, start = total + outcome.number, outcome.then
            if progress is not None:
                progress(total)
            if not start:
                return total

    async def pause(self) -> None:
        """Deliver nothing until ``resume``; the queue still accepts messages."""
        await self._paused(True)

    async def resume(self) -> None:
        await self._paused(False)

    async def _paused(self, paused: bool) -> None:
        changes = (await self._now()).changes
        while (outcome := await self._do(words.encode(words.Pause(paused, changes)))).status == words.NEXT:
            changes = outcome.number

    async def configure(
        self,
        *,
        messages_max: int | None = None,
        bytes_max: int | None = None,
        full: str | None = None,
        tries: int | None = None,
        backoff: tuple[float, float] | None = None,
        window: float | None = None,
        lease: float | None = None,
        dead_max: int | None = None,
        dead_expired: bool | None = None,
        transform: str | None = None,
    ) -> None:
        """Change settings of the queue; those that are not given stay. ``transform=""`` ends the transforming of
        arriving messages."""
        while True:  # until nobody else changes the queue between the look and the command
            now = await self._now()
            given = settings_of(
                messages_max,
                bytes_max,
                full,
                tries,
                backoff,
                window,
                lease,
                dead_max,
                dead_expired,
                transform,
                now.settings,
            )
            if given is None:
                return
            outcome = await self.configured(words.Configure(given, True, now.changes), None)
            if outcome.status != words.NEXT:
                self.forget_chain()
                return

    async def configured(self, command: words.Configure, timeout: float | None) -> Outcome:
        return await self._do(words.encode(command), timeout)

    async def _do(self, command: bytes, timeout: float | None = None) -> Outcome:
        self._check_open()
        pause_s = 0.02
        while True:
            outcome = await self._line.call(command, timeout)
            if outcome.status == REFUSED:
                raise Refused(outcome.reason)
            if outcome.status != words.FULL:
                return outcome
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)

    # The end.

    async def drain(self, timeout: float) -> None:
        await self._sender.drain(timeout)

    async def close(self) -> None:
        """Close. Messages that were sent are confirmed first, or raise as ``flush`` does; messages that were received
        and not settled are given back."""
        if self.closed:
            return
        try:
            await self._sender.flush()
        finally:
            self.closed = True
            for task in list(self._tasks):
                task.cancel()
            try:
                if self._tasks:
                    await asyncio.wait(list(self._tasks))
                for consumer in list(self._consumers):
                    await consumer.close()
            finally:  # also if the caller gives up
                self.abandon()

    def abandon(self) -> None:
        self.closed = True
        for task in self._tasks:
            task.cancel()
        for consumer in self._consumers:
            consumer.abandon()
        self._sender.close()
        self._line.close()

    def __repr__(self) -> str:
        kind = "durable queue" if self.durable else "queue in memory"
        return f"<{kind} {self.name!r}{', closed' if self.closed else ''}>"

    async def __aenter__(self) -> MessageQueue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the queue {self.name!r} is closed here: open it again")


_stats = msgspec.msgpack.Decoder(Stats).decode
