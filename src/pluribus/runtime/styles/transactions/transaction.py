"""One transaction as a program holds it.

Messages that it sends are gathered here. Messages that it receives are held by a consumer of this process, and hidden
from others. The commit is one command for everything. Before the commit, the list of transactions has only what others
must know: a process that joined puts its actions there when its block ends, and ``prepare`` puts the actions of both
decisions there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput, PluribusError, TooLarge, TransactionEnded, Uncertain
from ....filters import Filter
from ....group.host import words as host
from ....pubsub.durable import batch as topic_batch
from ....pubsub.topics import checked_topic
from ....queues import batch as queue_batch
from ....queues import words as queue_words
from ....queues.machine import LATE
from ....queues.words import PRIORITY
from ....spaces import words as space_words
from ....transactions import words
from ....transactions.machine import MOVED
from ....transactions.words import ABORTED, ACTING, COMMITTED, ENDED, PREPARED, UNKNOWN
from ....wire.bodies import encode_body
from ...machines.line import TRANSIENT
from ..queues.arriving import transformed
from ..queues.consumer import _runs as runs_of
from ..queues.message import QueueMessage
from ..queues.options import message_of
from ..queues.outgoing import OutgoingMessage, extra_of
from ..queues.queue import LONG_BYTES, MessageQueue
from ..spaces.replicated import ReplicatedWay
from ..spaces.space import Space

if TYPE_CHECKING:
    from .transactions import TransactionsStyle

TOPICS = "topics"
LIST = "transactions"
BYTES_MAX = 2 << 20
"""Bytes of everything that one transaction sends and publishes."""
MESSAGES_MAX = 10_000
"""Messages and events that are received, sent and published."""
COMMIT_S = 30.0
"""Seconds for which a commit is repeated, before it is ``Uncertain``."""
LOOK_S = 0.25
"""Seconds between two looks of a process that joined whether the transaction has ended."""

LEFT = "left"

Parts = dict[str, list[bytes]]


class Transaction:
    """Made by ``bus.transaction()``, and entered. ``id`` is its name for other processes."""

    def __init__(self, style: TransactionsStyle, id: int, timeout: float, joined: bool) -> None:
        self.id = id
        self.state = UNKNOWN
        """``acting`` in its block, then ``prepared``, ``committed`` or ``aborted``."""
        self._style = style
        self._timeout = timeout
        self._until = 0.0
        self._joined = joined
        self._session = host.ONCE | style.bus.durable.new_number() % host.ONCE
        self._sent: dict[str, list[OutgoingMessage]] = {}
        self._published: list[tuple[str, Any, bytes, dict[str, Any]]] = []
        self._received: list[tuple[MessageQueue, QueueMessage[Any]]] = []
        self._settled: list[tuple[MessageQueue, QueueMessage[Any]]] = []
        """Messages that were received outside of it; without a commit they stay with the program that received them."""
        self._targets: dict[MessageQueue, None] = {}
        self._spaces: dict[str, ReplicatedWay] = {}
        self._bytes = 0
        self._others: list[tuple[str, list[bytes]]] = []
        self._version = 0
        self._asked: tuple[int, list[tuple[str, list[bytes]]], list[int]] | None = None
        """A commit that may have been done: its number, its actions, and the epochs of consumers."""
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Transaction:
        if self.state != UNKNOWN:
            raise BadInput("a transaction is entered once: begin another")
        if self._joined:
            outcome = await self._style.tell(words.Join(self.id, int(self._timeout * 1e6)))
            if outcome.status == ENDED:
                raise TransactionEnded(f"transaction {self.id} is {outcome.reason}: nobody can join it any more")
        loop = asyncio.get_running_loop()
        self.state = ACTING
        self._until = loop.time() + self._timeout
        self._timer = loop.call_later(self._timeout, self._outlived)
        self._style.began(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state in (COMMITTED, PREPARED, LEFT):
            return
        if error is None:
            await (self._hand_in() if self._joined else self.commit())
        elif self.state == ACTING and self._asked is None:
            try:
                await self.abort()
            except PluribusError as late:
                error.add_note(str(late))

    # Actions in it.

    async def send(
        self,
        queue: MessageQueue,
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
    ) -> None:
        """Send a message with the commit. See ``MessageQueue.send``. A body of more than 1 MiB goes ahead in pieces,
        which the queue drops if the commit does not come within ten minutes."""
        self._check(queue)
        kind, encoded = encode_body(body)
        await self.pass_on(
            queue, message_of(kind, encoded, priority, ttl, delay, properties, key, id, correlation, reply_to)
        )

    async def pass_on(self, queue: MessageQueue, message: OutgoingMessage) -> None:
        """Send a message that is encoded already."""
        self._check(queue)
        self._check_count()
        chain = await queue.chain()
        made = transformed(message, chain) if chain else message
        await queue.stage(made)
        self._check_acting()
        self._add(len(made.body))
        self._targets[queue] = None
        self._sent.setdefault(queue.line_name, []).append(made)

    async def receive(
        self, queue: MessageQueue, where: str | Filter | None = None, timeout: float | None = None
    ) -> QueueMessage[Any] | None:
        """Receive a message, which the commit settles; without a commit it comes back. See ``MessageQueue.receive``."""
        self._check(queue)
        self._check_count()
        left_s = self._until - asyncio.get_running_loop().time()
        message = await queue.receive(where, left_s if timeout is None else min(timeout, left_s))
        if message is None:
            self._check_acting()
            return None
        message.settled = True
        if self.state != ACTING:  # the transaction ended meanwhile
            _give_back(message)
            self._check_acting()
        self._received.append((queue, message))
        return message

    def settle(self, queue: MessageQueue, message: QueueMessage[Any]) -> None:
        """Have the commit settle a message that was received before. Without a commit the message stays as it is: held
        by you, to be settled or given back."""
        self._check(queue)
        self._check_count()
        consumer = message._consumer
        if consumer is None or consumer not in queue._consumers:
            raise BadInput(f"message {message.number} was not received from the queue {queue.name!r} here")
        if message.settled:
            raise BadInput(f"message {message.number} is settled already: settle a message once")
        message.settled = True
        self._settled.append((queue, message))

    async def publish(self, topic: str, body: Any, *, headers: Mapping[str, Any] | None = None) -> None:
        """Publish an event on a durable topic with the commit."""
        self._check_acting()
        checked_topic(topic)
        kind, encoded = encode_body(body)
        self._add(len(encoded))
        self._published.append((topic, kind, encoded, dict(headers or {})))

    async def enter(self, space: Space) -> int:
        """Let the transaction act in a space. Calls with ``transaction=tx`` do that by themselves; the returned number
        can be given instead of ``tx``."""
        self._check_acting()
        way = space._way
        if not isinstance(way, ReplicatedWay) or not way.line.durable:
            raise BadInput(
                "only a durable space of kind 'replicated' joins a transaction, and "
                f"{space.name!r} is of kind {space.kind!r}, in memory: open it as "
                "bus.space(name, kind='replicated', durable=True)"
            )
        if way.line.name not in self._spaces:
            left_s = self._until - asyncio.get_running_loop().time()
            await way.join(self.id, max(left_s, 0.001))
            self._spaces[way.line.name] = way
        return self.id

    async def write(self, space: Space, value: Any, lease: float | None = None) -> None:
        """Write a tuple; others see it after the commit."""
        await space.write(value, lease, transaction=await self.enter(space))

    async def take(self, space: Space, template: Any, where: str = "", *, timeout: float | None = None) -> Any:
        """Take a tuple; it is hidden from others, and gone after the commit."""
        return await space.take(template, where, timeout=timeout, transaction=await self.enter(space))

    async def read(self, space: Space, template: Any, where: str = "", *, timeout: float | None = None) -> Any:
        """Read a tuple; no other program can take it before the transaction has ended."""
        return await space.read(template, where, timeout=timeout, transaction=await self.enter(space))

    def _check(self, queue: MessageQueue) -> None:
        self._check_acting()
        if not queue.durable or queue._bus is not self._style.bus:
            raise BadInput(
                f"the queue {queue.name!r} is in memory, or of another bus: a transaction is over durable queues of "
                "one bus"
            )

    def _check_acting(self) -> None:
        if self.state == UNKNOWN:
            raise BadInput("enter it first: async with bus.transaction() as tx")
        if self.state != ACTING or self._asked is not None:
            raise TransactionEnded(f"transaction {self.id} is {self.state}, or being committed: begin another")

    def _check_began(self) -> None:
        """The actions of other processes are not known here: a commit by a process that joined would leave them out."""
        if self._joined:
            raise BadInput(
                f"transaction {self.id} was begun elsewhere, and is committed or prepared there: leave the block here "
                "first"
            )

    def _add(self, size: int) -> None:
        if size > LONG_BYTES or self._bytes + size > BYTES_MAX:
            raise TooLarge(
                f"a transaction sends at most {BYTES_MAX:,} bytes in short bodies, and events of at most "
                f"{LONG_BYTES:,}: split it"
            )
        self._check_count()
        self._bytes += size

    def _check_count(self) -> None:
        count = sum(map(len, self._sent.values())) + len(self._published) + len(self._held)
        if count >= MESSAGES_MAX:
            raise TooLarge(f"{MESSAGES_MAX:,} messages are all of one transaction: split it")

    @property
    def _held(self) -> list[tuple[MessageQueue, QueueMessage[Any]]]:
        return self._received + self._settled

    # Its end.

    async def commit(self, timeout: float | None = COMMIT_S) -> None:
        """Do everything, at one moment. The end of the block calls it.

        ``TransactionEnded``: nothing was done, and why. ``Uncertain``: nobody knows yet whether it was done; call it
        again, or ask ``bus.transaction_state(tx.id)``.
        """
        if self.state == COMMITTED:
            return
        self._check_began()
        if self.state == PREPARED:
            await self._style.resolve(self.id, True, timeout)
            self.state = COMMITTED
            return
        if self.state != ACTING:
            raise TransactionEnded(f"transaction {self.id} is {self.state}: begin another")
        while True:
            if self._asked is None:
                end = words.encode(words.Commit(self.id, self._version))
                parts = [*_merged(self._parts(), self._others).items(), (LIST, [end])]
                self._asked = (self._style.number(), parts, self._epochs())
            number, parts, epochs = self._asked
            try:
                outcome = await self._style.do(number, parts, timeout)
            except TRANSIENT as error:
                raise Uncertain(f"transaction {self.id} was committed or not: commit it again; {error}") from None
            if outcome.status in (host.DONE, host.AGAIN):
                self._end(COMMITTED)
                return
            if outcome.status == host.REFUSED and await self._again(outcome.reason, epochs):
                self._asked = None
                continue
            shown = await self._style.shown(self.id)
            if shown.state == COMMITTED:
                self._end(COMMITTED)
                return
            self._asked = None
            await self.abort()
            raise TransactionEnded(f"transaction {self.id} was not committed: {outcome.reason}")

    async def _again(self, reason: str, epochs: list[int]) -> bool:
        """True if another attempt, with the present knowledge, may succeed."""
        if reason.startswith(queue_words.TRANSFORMS):
            for queue in self._targets:  # the next transaction asks
                queue.forget_chain()
        if reason == MOVED:
            shown = await self._style.shown(self.id)
            self._version, self._others = shown.version, shown.parts
            return shown.state == ACTING
        return reason == LATE and self._epochs() != epochs and self._holds_all()

    async def prepare(self, timeout: float | None = COMMIT_S) -> None:
        """Prepare, so that another program can decide: the actions so far are kept, through any crash, until ``commit``
        or ``abort`` here, or ``bus.resolve_transaction(tx.id, commit=…)`` anywhere. A prepared transaction does not
        time out.

        ``TransactionEnded``: it could not be prepared, and nothing was done."""
        self._check_acting()
        self._check_began()
        if any(one.upload[0] for messages in self._sent.values() for one in messages):
            raise TooLarge(
                f"a body of more than {LONG_BYTES:,} bytes cannot wait for a decision in a prepared transaction: "
                "put it elsewhere, and send where it is"
            )
        left_us = int((self._until - asyncio.get_running_loop().time()) * 1e6)
        await self._style.tell(words.Join(self.id, max(left_us, 1)), timeout)
        for _ in range(100):
            shown = await self._style.shown(self.id, timeout)
            epochs = self._epochs()
            now, commit, abort = _promised(self.id, _merged(self._parts(), shown.parts))
            prepare = words.Prepare(self.id, shown.version, commit, abort)
            outcome = await self._style.do(self._style.number(), [*now, (LIST, [words.encode(prepare)])], timeout)
            if outcome.status in (host.DONE, host.AGAIN):
                self._end(PREPARED)
                return
            if outcome.reason != MOVED and not await self._again(outcome.reason, epochs):
                break
        await self.abort()
        raise TransactionEnded(f"transaction {self.id} was not prepared: {outcome.reason}")

    async def abort(self, timeout: float | None = COMMIT_S) -> None:
        """Undo everything: received messages come back, which counts as one more try."""
        if self.state == ABORTED:
            return
        if self.state == PREPARED:
            await self._style.resolve(self.id, False, timeout)
            self.state = ABORTED
            return
        if self.state == COMMITTED or self._asked is not None:
            raise TransactionEnded(f"transaction {self.id} is committed, or may be: it cannot be aborted any more")
        spaces = dict(self._spaces)
        self._end(ABORTED)
        try:
            await self._style.tell(words.Abort(self.id), timeout)
        finally:
            for way in spaces.values():
                with suppress(PluribusError):  # then its lease ends it there
                    await way.call(space_words.Abort(self.id))

    async def leave(self) -> None:
        """End a transaction in which nothing was done; no other process is told."""
        self._check_acting()
        if self._held or self._sent or self._published or self._spaces:
            raise BadInput(f"something was done in transaction {self.id}: commit it, or abort it")
        self._end(LEFT)

    async def give_up(self) -> None:
        """Abort, because the bus is being closed."""
        if self.state == ACTING and not self._joined and self._asked is None:
            await self.abort(5.0)
        else:
            self.abandon()

    def abandon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        self._style.ended(self)

    def _outlived(self) -> None:
        """The time-out has passed, and it was neither committed nor prepared."""
        if self.state == ACTING and self._asked is None and self._watching is None:
            self._end(ABORTED)

    def _end(self, state: str) -> None:
        self.state = state
        if state == ABORTED:
            for _, message in self._received:
                _give_back(message)
            for _, message in self._settled:
                message.settled = False
        else:
            for _, message in self._held:
                consumer = message._consumer
                if consumer is not None and consumer.hands.get(message.number) == message.assignment:
                    del consumer.hands[message.number]
        self._received, self._settled = [], []
        self.abandon()

    # Joined.

    async def _hand_in(self) -> None:
        """The block of a process that joined is over: put its actions in the list, where the committing process finds
        them."""
        if self.state != ACTING:
            raise TransactionEnded(f"transaction {self.id} is {self.state}: begin another")
        actor = self._session % host.ONCE or 1
        outcome = await self._style.tell(words.Put(self.id, actor, list(self._parts().items())), COMMIT_S)
        if outcome.status == ENDED:
            self._end(ABORTED)
            raise TransactionEnded(f"transaction {self.id} is {outcome.reason}: what was done in it here is not done")
        if self._held:
            self._watching = asyncio.create_task(self._watch())
        else:
            self.abandon()

    async def _watch(self) -> None:
        """Hold the messages received here until the transaction has ended."""
        while True:
            with suppress(*TRANSIENT):
                state = (await self._style.shown(self.id, None)).state
                if state != ACTING:
                    self._watching = None
                    self._end(state if state in (COMMITTED, PREPARED) else ABORTED)
                    return
            await asyncio.sleep(LOOK_S)

    # The contents of its command.

    def _epochs(self) -> list[int]:
        return [0 if one._consumer is None else one._consumer.epoch for _, one in self._held]

    def _holds_all(self) -> bool:
        return all(
            one._consumer is not None and one._consumer.hands.get(one.number) == one.assignment for _, one in self._held
        )

    def _parts(self) -> Parts:
        """The actions of this process in each machine."""
        parts: Parts = {}
        by_consumer: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
        for queue, message in self._held:
            consumer = message._consumer
            assert consumer is not None
            held = by_consumer.setdefault((queue.line_name, consumer.number, consumer.epoch), [])
            held.append((message.number, message.deliveries))
        for (name, number, epoch), things in by_consumer.items():
            acked, deliveries = runs_of(sorted(things))
            settle = queue_words.Settle(number, epoch, acked, deliveries=deliveries)
            parts.setdefault(name, []).append(queue_words.encode(settle))
        time_us = int(self._style.bus.durable.wall() * 1e6)
        first = 1
        for name, messages in self._sent.items():
            for one in messages:
                packed = queue_batch.pack(
                    self._session, first, time_us, one.kind, [one.body], extra_of([one], one.chain)
                )
                parts.setdefault(name, []).append(packed)
                first += 1
        sender = int(self._style.bus.me)
        for topic, kind, encoded, headers in self._published:
            packed = topic_batch.pack(topic, self._session, first, sender, kind, time_us, [encoded], [headers], [None])
            parts.setdefault(TOPICS, []).append(packed)
            first += 1
        for name in self._spaces:
            parts.setdefault(name, []).append(space_words.encode(space_words.Commit(self.id)))
        return parts

    def __repr__(self) -> str:
        return f"<transaction {self.id}, {self.state}>"


def _merged(own: Parts, others: Sequence[tuple[str, list[bytes]]]) -> Parts:
    merged = {name: list(commands) for name, commands in own.items()}
    for name, commands in others:
        known = merged.setdefault(name, [])
        known += [one for one in commands if one not in known]  # a space is committed only once
    return merged


def _promised(id: int, parts: Parts) -> tuple[list[tuple[str, list[bytes]]], ...]:
    """The actions of ``prepare``, which make either decision possible later; then the actions of each decision."""
    now: list[tuple[str, list[bytes]]] = []
    commit: list[tuple[str, list[bytes]]] = []
    abort: list[tuple[str, list[bytes]]] = []
    for name, commands in parts.items():
        if name.startswith("queue."):
            keeps: list[bytes] = []
            sends: list[bytes] = []
            for one in commands:
                if queue_batch.is_batch(one):
                    sends.append(one)
                    continue
                settle = queue_words.command_of(one)
                assert isinstance(settle, queue_words.Settle)
                keep = queue_words.Keep(id, settle.consumer, settle.epoch, settle.acked, settle.deliveries)
                keeps.append(queue_words.encode(keep))
            if keeps:
                now.append((name, keeps))
                abort.append((name, [queue_words.encode(queue_words.Resolve(id, False))]))
            commit.append((name, [queue_words.encode(queue_words.Resolve(id, True)), *sends]))
        elif name == TOPICS:
            commit.append((name, commands))
        else:
            now.append((name, [space_words.encode(space_words.Prepare(id))]))
            commit.append((name, [space_words.encode(space_words.Commit(id))]))
            abort.append((name, [space_words.encode(space_words.Abort(id))]))
    return now, commit, abort


def _give_back(message: QueueMessage[Any]) -> None:
    consumer = message._consumer
    if consumer is not None and not consumer.closed:
        consumer.settle_later(message, queue_words.NACK)
