"""Queued calls: a call is kept on disk at the caller until its object is there, and its answer until the caller is
there.

Exercises 6.3 and 6.4 of the chapter (Rover's queued RPC): space-coupled, because a call names its object, and uncoupled
in time, because neither of the two must be there when the other is.

*Promises.* A call that was accepted is on disk. It is done at most once, whatever crashes: it is offered to one *site*
and to no other. A site is a process, or, if that has a queue of its own on disk, all processes that open that file one
after the other. Its answer is kept by the site until the caller has it on disk, and by the caller until the program has
taken it. If the site may have begun a call and lost its outcome, the answer is ``Uncertain``.

*The caller* (``CallOutbox``) numbers its calls. A call is *waiting*, then *bound* to a site (written before the call is
offered for the first time), then *answered*, then *taken*. The answer to a call with a key is remembered after that, so
that a repeated call with the key, after a crash for instance, gets it again. With each offer the caller says below
which number it has all answers.

*The site* (``Inbox``) knows of each call of each queue whether it runs, or its outcome. A known call is not done again.
With a disk it writes that a call begins before it does; after a restart such a call is uncertain.

*Live.* The caller offers a bound call again whenever its site is there. *Bounded.* ``QUEUED_CALLS_MAX`` calls of a
caller, ``QUEUED_ANSWERS_MAX`` answers of a site; one more is refused. ``QUEUED_KEYS_MAX`` keys are remembered. A caller
that never comes back keeps its answers for ever on a site with a disk. At most ``QUEUES_MAX`` queues are known; the one
that was silent longest is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from ..core.errors import Damaged, Overflow
from ..core.limits import QUEUED_ANSWERS_MAX, QUEUED_CALLS_MAX, QUEUED_KEYS_BYTES_MAX, QUEUED_KEYS_MAX
from ..wire.questions import Wrapped

QUEUES_MAX = 10_000
WAITING, BOUND, ANSWERED = "waiting", "bound", "answered"

Outcome = tuple[int, Wrapped]
"""True and the result, or false and the exception's name and text."""


class QueueIdentity(msgspec.Struct, array_like=True, frozen=True, tag=0):
    name: str
    next: int = 1


class CallAccepted(msgspec.Struct, array_like=True, frozen=True, tag=1):
    number: int
    key: str
    receiver: str
    payload: bytes


class CallBound(msgspec.Struct, array_like=True, frozen=True, tag=2):
    number: int
    site: str


class CallAnswered(msgspec.Struct, array_like=True, frozen=True, tag=3):
    number: int
    outcome: Outcome


class CallTaken(msgspec.Struct, array_like=True, frozen=True, tag=4):
    number: int


class CallBegan(msgspec.Struct, array_like=True, frozen=True, tag=5):
    queue: str
    number: int


class CallEnded(msgspec.Struct, array_like=True, frozen=True, tag=6):
    queue: str
    number: int
    outcome: Outcome


class CallsForgotten(msgspec.Struct, array_like=True, frozen=True, tag=7):
    queue: str
    below: int


Row = QueueIdentity | CallAccepted | CallBound | CallAnswered | CallTaken | CallBegan | CallEnded | CallsForgotten
encode_row = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Row).decode


def decode_rows(rows: Iterable[bytes]) -> list[Row]:
    try:
        return [_decode(row) for row in rows]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Damaged(f"a row of queued calls cannot be read ({error}): begin a new file") from None


class QueuedCall(msgspec.Struct):
    """One call of the caller."""

    number: int
    key: str
    receiver: str
    payload: bytes
    site: str = ""
    outcome: Outcome | None = None

    @property
    def state(self) -> str:
        return ANSWERED if self.outcome is not None else BOUND if self.site else WAITING


class CallOutbox:
    """The caller's calls. The rows that ``bind`` and ``answer`` return are written first, and then applied."""

    def __init__(self, name: str, rows: Iterable[Row] = ()) -> None:
        self.name = name
        self._next = 1
        self.calls: dict[int, QueuedCall] = {}
        self.remembered: dict[int, QueuedCall] = {}
        """Calls with a key whose answers were taken, in the order of taking."""
        self._remembered_bytes = 0
        self._by_key: dict[str, int] = {}
        for row in rows:
            self._apply(row)

    def accept(self, key: str, receiver: str, payload: bytes) -> tuple[QueuedCall, list[Row]]:
        """A new call; or, with the key of a known call, that call."""
        known = self.by_key(key) if key else None
        if known is not None:
            return known, []
        if len(self.calls) >= QUEUED_CALLS_MAX:
            raise Overflow(f"{QUEUED_CALLS_MAX:,} queued calls wait already: take their answers, or call later")
        row = CallAccepted(self._next, key, receiver, payload)
        self._apply(row)
        return self.calls[row.number], [row]

    def bind(self, number: int, site: str) -> list[Row]:
        assert not self.calls[number].site, "a call has one site"
        return [CallBound(number, site)]

    def answer(self, number: int, outcome: Outcome) -> list[Row]:
        """Record an answer; only the first one counts."""
        call = self.calls.get(number)
        return [] if call is None or call.outcome is not None else [CallAnswered(number, outcome)]

    def apply(self, rows: Iterable[Row]) -> None:
        """Apply rows that are on disk."""
        for row in rows:
            self._apply(row)

    def take(self, number: int) -> list[Row]:
        """The program has the answer."""
        if number not in self.calls:
            return []
        row = CallTaken(number)
        self._apply(row)
        return [row]

    def by_key(self, key: str) -> QueuedCall | None:
        number = self._by_key.get(key)
        return None if number is None else self.calls.get(number) or self.remembered[number]

    @property
    def settled(self) -> int:
        """The caller has the answers of all calls below this number."""
        return next((number for number, call in self.calls.items() if call.outcome is None), self._next)

    def live(self) -> Iterator[bytes]:
        yield encode_row(QueueIdentity(self.name, self._next))
        for call in self.remembered.values():
            assert call.outcome is not None
            yield encode_row(CallAccepted(call.number, call.key, call.receiver, b""))
            yield encode_row(CallAnswered(call.number, call.outcome))
            yield encode_row(CallTaken(call.number))
        for call in self.calls.values():
            yield encode_row(CallAccepted(call.number, call.key, call.receiver, call.payload))
            if call.site:
                yield encode_row(CallBound(call.number, call.site))
            if call.outcome is not None:
                yield encode_row(CallAnswered(call.number, call.outcome))

    def _apply(self, row: Row) -> None:
        if isinstance(row, QueueIdentity):
            self.name, self._next = row.name, max(self._next, row.next)
        elif isinstance(row, CallAccepted):
            self.calls[row.number] = QueuedCall(row.number, row.key, row.receiver, row.payload)
            self._next = max(self._next, row.number + 1)
            if row.key:
                self._by_key[row.key] = row.number
        elif isinstance(row, CallBound) and row.number in self.calls:
            self.calls[row.number].site = row.site
        elif isinstance(row, CallAnswered) and row.number in self.calls:
            self.calls[row.number].outcome = row.outcome
        elif isinstance(row, CallTaken):
            gone = self.calls.pop(row.number, None)
            if gone is not None and gone.key:
                self._remember(gone)

    def _remember(self, call: QueuedCall) -> None:
        if call.outcome is None:  # the call could not be written, and was not made
            del self._by_key[call.key]
            return
        call.payload = b""
        self.remembered[call.number] = call
        self._remembered_bytes += len(call.outcome[1][1])
        while len(self.remembered) > QUEUED_KEYS_MAX or self._remembered_bytes > QUEUED_KEYS_BYTES_MAX:
            oldest = self.remembered.pop(next(iter(self.remembered)))
            assert oldest.outcome is not None
            self._remembered_bytes -= len(oldest.outcome[1][1])
            del self._by_key[oldest.key]

    def validate(self) -> None:
        assert len(self.calls) <= QUEUED_CALLS_MAX and len(self.remembered) <= QUEUED_KEYS_MAX
        assert not self.calls.keys() & self.remembered.keys()
        assert list(self.calls) == sorted(self.calls) and all(number < self._next for number in self.calls)
        keyed = [call for table in (self.calls, self.remembered) for call in table.values() if call.key]
        assert self._by_key == {call.key: call.number for call in keyed}


class _Queue(msgspec.Struct):
    below: int = 0
    calls: dict[int, Outcome | None] = {}
    """The outcome; None while it runs."""


NEW, RUNS, OVER, OLD = "new", "runs", "over", "old"


class Inbox:
    """A site's knowledge of the calls of others."""

    def __init__(self, site: str, rows: Iterable[Row] = (), lost: Outcome | None = None) -> None:
        """``lost`` is the outcome of calls that had begun when the process ended."""
        self.site = site
        self._queues: OrderedDict[str, _Queue] = OrderedDict()
        self._answers = 0
        for row in rows:
            self._apply(row)
        for queue in self._queues.values():
            for number, outcome in queue.calls.items():
                if outcome is None and lost is not None:
                    queue.calls[number] = lost

    def look(self, queue: str, number: int) -> tuple[str, Outcome | None]:
        """What to do with an offer: the call is ``new``, or it ``runs``, or it is ``over`` with this outcome, or so
        ``old`` that its caller has the answer."""
        known = self._queues.get(queue)
        if known is None:
            return NEW, None
        self._queues.move_to_end(queue)
        if number < known.below:
            return OLD, None
        if number not in known.calls:
            return NEW, None
        outcome = known.calls[number]
        return (RUNS, None) if outcome is None else (OVER, outcome)

    def begin(self, queue: str, number: int) -> list[Row]:
        if self._answers >= QUEUED_ANSWERS_MAX:
            raise Overflow(f"{QUEUED_ANSWERS_MAX:,} answers are kept for callers that are away: offer it later")
        row = CallBegan(queue, number)
        self._apply(row)
        return [row]

    def abandon(self, queue: str, number: int) -> None:
        """The beginning of a call could not be written, so the call did not begin."""
        if self._queues[queue].calls.pop(number, 0) != 0:
            self._answers -= 1

    def end(self, queue: str, number: int, outcome: Outcome) -> list[Row]:
        row = CallEnded(queue, number, outcome)
        self._apply(row)
        return [row]

    def forget(self, queue: str, below: int) -> list[Row]:
        """The caller has all answers below this number."""
        known = self._queues.get(queue)
        if known is None or below <= known.below:
            return []
        row = CallsForgotten(queue, below)
        self._apply(row)
        return [row]

    def live(self) -> Iterator[bytes]:
        yield encode_row(QueueIdentity(self.site))
        for name, queue in self._queues.items():
            if queue.below:
                yield encode_row(CallsForgotten(name, queue.below))
            for number, outcome in queue.calls.items():
                yield encode_row(CallBegan(name, number) if outcome is None else CallEnded(name, number, outcome))

    def _apply(self, row: Row) -> None:
        if isinstance(row, QueueIdentity):
            self.site = row.name
        elif isinstance(row, CallBegan | CallEnded):
            queue = self._queue(row.queue)
            self._answers += row.number not in queue.calls
            queue.calls[row.number] = row.outcome if isinstance(row, CallEnded) else None
        elif isinstance(row, CallsForgotten):
            queue = self._queue(row.queue)
            queue.below = max(queue.below, row.below)
            for number in [number for number in queue.calls if number < row.below]:
                del queue.calls[number]
                self._answers -= 1

    def _queue(self, name: str) -> _Queue:
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = _Queue()
            if len(self._queues) > QUEUES_MAX:
                _, gone = self._queues.popitem(last=False)
                self._answers -= len(gone.calls)
        return found

    def validate(self) -> None:
        assert self._answers == sum(len(queue.calls) for queue in self._queues.values())
        assert len(self._queues) <= QUEUES_MAX and self._answers <= QUEUED_ANSWERS_MAX
        for queue in self._queues.values():
            assert all(number >= queue.below for number in queue.calls)
