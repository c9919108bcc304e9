"""``bus.queued_calls``: calls that wait on disk until their objects are there, and answers that wait for their callers.

``objects.queued`` has the promises, and says why a call is done once; here are the store, the tasks and the group. Each
call that is not answered has a task: it finds the object, binds the call to the site that has it, offers it, and tries
again when the processes on the bus, or their objects, have changed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ....core.errors import (
    AnswersLate,
    BadInput,
    Closed,
    NoObject,
    PluribusError,
    RemoteError,
    Uncertain,
)
from ....core.frame import Message
from ....core.ids import checked_name
from ....core.ports import Store
from ....group.calls import arguments_of, called
from ....objects.journal import Journal
from ....objects.names import new_id
from ....objects.queued import (
    NEW,
    OLD,
    OVER,
    RUNS,
    CallOutbox,
    Inbox,
    Outcome,
    QueuedCall,
    Row,
    decode_rows,
    encode_row,
)
from ....objects.words import FAILED, GOOD, Offer, Outcomes, Settled, Whereabouts, packed_call, unpacked_call
from ....wire.questions import unwrapped, wrapped
from ...group.asking import ERROR_CHARS_MAX

if TYPE_CHECKING:
    from .post import Post

log = logging.getLogger(__name__)

OUT, IN = "queued/out", "queued/in"
AGAIN_S = 5.0
"""Seconds after which a call that could not be offered is tried again; a change of names or members does it earlier."""
LOOK_S = 30.0
"""Seconds after which a missing object is looked for again without any change that was announced."""
LOOKS_AT_ONCE_MAX = 64
"""Calls that look for their objects at a time."""
OFFER_S = 30.0
"""Seconds after which an unanswered offer is repeated: the site knows whether the call runs."""
GONE_S = 30.0
"""Seconds after which a missing process without a queue of its own is taken for gone, and its calls for uncertain."""
EPHEMERAL = "process:"
"""The prefix of the site's name, for a process without a queue of its own."""


class CallQueue:
    """Made by the bus. ``open`` it before a call is queued; to do queued calls of others it need not be open."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._outbox = CallOutbox("")
        self._inbox = Inbox(f"{EPHEMERAL}{int(post.bus.me)}")
        self._out: Journal | None = None
        self._in: Journal | None = None
        self._store: Any = None
        self._answered: dict[int, asyncio.Event] = {}
        self._working: dict[int, asyncio.Event] = {}
        """Calls that have a task, and the event that wakes it."""
        self._running: dict[tuple[str, int], asyncio.Event] = {}
        """Calls of others that are running."""
        self._missing: dict[str, float] = {}
        """When a bound site was found missing."""
        self._unwritten: dict[int, None] = {}
        self._absent: dict[str, float] = {}
        """Objects that were missing, and when they were looked for; nothing has changed since."""
        self._writing: dict[asyncio.Future[Exception | None], None] = {}
        self._looking = asyncio.Semaphore(LOOKS_AT_ONCE_MAX)
        post.services |= {Offer: self._offered, Settled: self._settled, Whereabouts: self._asked_where}
        post.on_members.append(lambda there: self._wake())

    @property
    def site(self) -> str:
        return self._inbox.site

    async def open(self, path: str | os.PathLike[str]) -> None:
        """Keep calls and answers in this file. One process uses a file at a time; calls that wait in it go on."""
        from ...keepers.keeper import opened_store

        if self._store is not None:
            raise BadInput("the queue of this bus is open: one file serves all its calls")
        store = opened_store(os.fspath(path))
        try:
            await self.open_in(store)
        except BaseException:
            store.close()
            raise
        self._store = store

    async def open_in(self, store: Store) -> None:
        """Keep calls and answers in a store that the caller closes."""
        await self._post.group()
        out, into = (Journal(store, log, lambda: ()) for log in (OUT, IN))
        sent, came = decode_rows(out.rows()), decode_rows(into.rows())
        name = new_id(self._post.bus._random)
        self._outbox = CallOutbox(name, sent)
        lost = (FAILED, wrapped([Uncertain.__name__, "the process of the object ended while it did this call"]))
        self._inbox = Inbox(name, came, lost)
        self._out = Journal(store, OUT, self._outbox.live)
        self._in = Journal(store, IN, self._inbox.live)
        if not sent:
            await self._written(self._out, list(self._outbox.live()))
        if not came:
            await self._written(self._in, list(self._inbox.live()))
        for call in self._outbox.calls.values():
            if call.outcome is None:
                self._begin(call)

    def pending(self) -> list[QueuedCall]:
        """Calls on disk whose answers were not taken. Each has a number, a key, a receiver and a ``state``."""
        return [call for number, call in self._outbox.calls.items() if number not in self._unwritten]

    async def call(
        self,
        receiver: str,
        method: str,
        args: Sequence[Any],
        named: Mapping[str, Any],
        key: str,
        timeout: float | None,
    ) -> Any:
        """The result of the method, or ``RemoteError``; ``Uncertain`` if nobody can know whether it was done. After
        ``timeout`` seconds ``AnswersLate``: the call stays in the queue."""
        journal = self._journal()
        if key:
            checked_name(key, "the key")
        call, rows = self._outbox.accept(key, receiver, packed_call(called(0, method, args, named)))
        if rows:
            self._unwritten[call.number] = None
            try:
                await self._written(journal, [encode_row(row) for row in rows])
            except PluribusError:
                self._outbox.take(call.number)
                raise
            finally:
                del self._unwritten[call.number]
            self._begin(call)
        return await self._result(call, timeout)

    async def answer(self, which: str | int, *, timeout: float | None = None) -> Any:
        """The answer to a call in the queue, by its key or number; for a program that was restarted."""
        call = self._outbox.by_key(which) if isinstance(which, str) else self._outbox.calls.get(which)
        if call is None:
            raise BadInput(f"no call {which!r} is in the queue: there was none, or its answer was taken: use a key")
        return await self._result(call, timeout)

    async def _result(self, call: QueuedCall, timeout: float | None) -> Any:
        answered = self._answered.setdefault(call.number, asyncio.Event())
        try:
            async with asyncio.timeout(timeout):
                while call.outcome is None:
                    if self._post.over:
                        raise Closed("the bus was closed before the call was answered: it stays in the queue")
                    answered.clear()
                    await answered.wait()
        except TimeoutError:
            if call.outcome is None:
                name = repr(call.key) if call.key else call.number
                raise AnswersLate(
                    f"no answer to {call.receiver!r} in {timeout:g} s: the call stays in the queue as {name}"
                ) from None
        assert call.outcome is not None
        self._write_soon(self._out, self._outbox.take(call.number))
        self._answered.pop(call.number, None)
        how, body = call.outcome
        value = unwrapped(body)
        if how == GOOD:
            return value
        kind, text = value if isinstance(value, list) and len(value) == 2 else ("Exception", str(value))
        if kind == Uncertain.__name__:
            raise Uncertain(str(text))
        raise RemoteError(f"{kind}: {text}", str(kind))

    # The caller

    def _begin(self, call: QueuedCall) -> None:
        if call.number not in self._working:
            self._working[call.number] = asyncio.Event()
            self._post.spawn(self._work(call))

    async def _work(self, call: QueuedCall) -> None:
        wake = self._working[call.number]
        try:
            while call.outcome is None:
                wake.clear()
                try:
                    if await self._offer(call):
                        break
                except Closed:
                    return
                except PluribusError as error:
                    log.debug("queued call %s waits: %s", call.number, error)
                try:
                    async with asyncio.timeout(AGAIN_S):
                        await wake.wait()
                except TimeoutError:
                    pass
        finally:
            self._working.pop(call.number, None)
        self._tell(call.number)
        await self._say_settled()

    async def _offer(self, call: QueuedCall) -> bool:
        """True if the call is answered now."""
        post, journal = self._post, self._journal()
        if call.receiver in post.directory.residents or post.directory.knows(call.receiver):
            if not call.site:
                await self._kept(journal, self._outbox.bind(call.number, self.site))
            if call.site == self.site:
                outcome = await self._do(self._outbox.name, call.number, call.receiver, call.payload)
                return await self._take(call, outcome)
        now = post.bus._now()
        if now - self._absent.get(call.receiver, -LOOK_S) < LOOK_S:
            return await self._given_up(call)
        try:
            async with self._looking:
                places = await post.places.all(call.receiver, 0.0)
        except NoObject:
            self._absent[call.receiver] = now
            return await self._given_up(call)
        for member in dict.fromkeys(member for member, _ in places if member):
            told = await post.ask_one(member, Whereabouts(call.receiver), OFFER_S)
            site = told.site if isinstance(told, Whereabouts) and told.receiver else ""
            if site and not call.site:
                await self._kept(journal, self._outbox.bind(call.number, site))
            if site and site == call.site:
                self._missing.pop(site, None)
                word = Offer(self._outbox.name, call.number, self._outbox.settled, site, call.receiver, call.payload)
                answer = await post.ask_one(member, word, OFFER_S)
                if isinstance(answer, Outcomes) and len(answer.of) == 1:
                    _, how, body = answer.of[0]
                    return await self._take(call, (how, body))
        return await self._given_up(call)

    async def _given_up(self, call: QueuedCall) -> bool:
        """A process without a queue that is away for long is gone: whether it did the call is uncertain."""
        if not call.site.startswith(EPHEMERAL) or int(call.site.removeprefix(EPHEMERAL)) in self._post.members():
            return False
        now = self._post.bus._now()
        if now - self._missing.setdefault(call.site, now) < GONE_S:
            return False
        del self._missing[call.site]
        text = "the process that was to do this call is gone, and kept no queue: it may have done it"
        return await self._take(call, (FAILED, wrapped([Uncertain.__name__, text])))

    async def _take(self, call: QueuedCall, outcome: Outcome | None) -> bool:
        if outcome is None:
            return False
        await self._kept(self._journal(), self._outbox.answer(call.number, outcome))
        return True

    async def _kept(self, journal: Journal, rows: list[Row]) -> None:
        await self._written(journal, [encode_row(row) for row in rows])
        self._outbox.apply(rows)

    async def _say_settled(self) -> None:
        """Tell sites which answers are here: they need not keep them."""
        if self._post.members():
            await (await self._post.group()).send(Settled(self._outbox.name, self._outbox.settled))
        self._write_soon(self._in, self._inbox.forget(self._outbox.name, self._outbox.settled))

    def _tell(self, number: int) -> None:
        answered = self._answered.get(number)
        if answered is not None:
            answered.set()

    def _wake(self) -> None:
        self._absent.clear()
        for wake in self._working.values():
            wake.set()

    def changed(self) -> None:
        """Names have changed in some process."""
        self._wake()

    # The site

    def _asked_where(self, message: Message) -> None:
        name = message.body.receiver
        known = name if self._post.directory.knows(name) else ""
        self._post.spawn(self._post.reply(message, Whereabouts(known, self.site)), sends=True)

    def _settled(self, message: Message) -> None:
        self._write_soon(self._in, self._inbox.forget(message.body.queue, message.body.below))

    def _offered(self, message: Message) -> None:
        self._post.spawn(self._done_for(message))

    async def _done_for(self, message: Message) -> None:
        offer: Offer = message.body
        self._write_soon(self._in, self._inbox.forget(offer.queue, offer.settled))
        try:
            if offer.site != self.site:
                raise NoObject("another process was offered this call: it alone may do it")
            outcome = await self._do(offer.queue, offer.number, offer.receiver, offer.payload)
        except PluribusError as error:
            await (await self._post.group())._asker.fail(message, error)
            return
        if outcome is None:
            outcome = (FAILED, wrapped([Uncertain.__name__, "the caller had said that it has the answer"]))
        await self._post.reply(message, Outcomes([("", *outcome)]))

    async def _do(self, queue: str, number: int, receiver: str, payload: bytes) -> Outcome | None:
        """Run a call, unless it was done or is running; returns its outcome. None if its caller has the answer."""
        how, outcome = self._inbox.look(queue, number)
        if how == NEW:
            await self._do_first(queue, number, receiver, payload)
            how, outcome = self._inbox.look(queue, number)
        while how == RUNS:
            over = self._running.get((queue, number))
            if over is None:
                break
            await over.wait()
            how, outcome = self._inbox.look(queue, number)
        return outcome if how in (OVER, OLD) else None

    async def _do_first(self, queue: str, number: int, receiver: str, payload: bytes) -> None:
        resident = self._post.directory.one_of(receiver)
        if resident is None:
            raise NoObject(f"no object here is {receiver!r}: find it again")
        rows = self._inbox.begin(queue, number)
        over = self._running[(queue, number)] = asyncio.Event()
        try:
            if self._in is not None:
                try:
                    await self._written(self._in, [encode_row(row) for row in rows])
                except PluribusError:
                    self._inbox.abandon(queue, number)
                    raise
            try:
                call = unpacked_call(payload)
                args, named = arguments_of(call)
                outcome = await self._post.calls.here(resident, call.method, args, named)
            except (msgspec.MsgspecError, UnicodeDecodeError, PluribusError) as error:
                outcome = (FAILED, wrapped([type(error).__name__, str(error)[:ERROR_CHARS_MAX]]))
            rows = self._inbox.end(queue, number, outcome)
            if self._in is not None:
                await self._written(self._in, [encode_row(row) for row in rows])
        finally:
            self._running.pop((queue, number), None)
            over.set()

    # The disk

    def _journal(self) -> Journal:
        if self._out is None:
            raise BadInput("queued calls are kept on disk: say where, await bus.queued_calls.open('calls.db')")
        return self._out

    async def _written(self, journal: Journal, rows: list[bytes]) -> None:
        """Returns when the rows are on disk."""
        if not rows:
            return
        if self._post.over:
            raise Closed("the bus is closed: connect again")
        written: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if not written.done():
                written.set_result(error)

        self._writing[written] = None
        try:
            journal.add(rows, done)
            error = await written
        finally:
            del self._writing[written]
        if error is not None:
            raise error

    def _write_soon(self, journal: Journal | None, rows: list[Row]) -> None:
        """Write without waiting. If the rows are lost, they are found out again."""
        if journal is not None and rows:
            journal.add([encode_row(row) for row in rows], lambda error: None)

    def close(self) -> None:
        for written in self._writing:  # tasks that wait for the disk: nothing else will wake them
            if not written.done():
                written.set_result(Closed("the bus was closed before it was written: connect again"))
        for answered in self._answered.values():
            answered.set()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def validate(self) -> None:
        self._outbox.validate()
        self._inbox.validate()
