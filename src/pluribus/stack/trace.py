"""The trace: every stimulus of a stack, in order, so that the run can be replayed.

Theory of operation
-------------------
A stack without I/O is a function of its stimuli: datagrams, timers that fire, calls of the application, answers of the
clock and of the random port. The trace layer stands at the top of a stack, below the groups, and sees the calls of the
application. It also stands between the stack and its ports, and sees everything else. It records when it passed
something up and when a stimulus ended. A call that was made while something was passed up (``DOWN_WITHIN``,
``EVENT_WITHIN``) is recorded apart from a call that is a stimulus of its own, so that replay makes it at the same
point.

``Replay`` feeds the records to a new stack of the same layers, with ``ReplayTop`` in place of the application, and
compares what that stack hands to its engine, byte for byte.

Records are msgpack, each behind its length, in anything that takes bytes (a file, a list). Traces of real processes and
of simulated hosts have the same form.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import msgspec

from ..core.errors import BadInput, Overflow
from ..core.frame import Frame
from ..core.limits import TRACE_RECORDS_MAX
from ..core.ports import Address, Datagram, EngineStats, Founding, Ports, Timer
from . import events
from .events import Event
from .layer import Layer
from .stack import Stack

Write = Callable[[bytes], Any]
Receive = Callable[[list[Datagram]], None]

NOW, TIMER, DATAGRAMS, RANDOM, DOWN, EVENT, SENT, SENT_ALL, UP, TOLD, END, STOP, DOWN_WITHIN, EVENT_WITHIN = range(14)
FOUNDING = 14
_encode = msgspec.msgpack.Encoder().encode
_EVENTS = {name: kind for name, kind in vars(events).items() if isinstance(kind, type) and issubclass(kind, Event)}


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One stimulus or one effect. What ``value`` is depends on the kind."""

    kind: int
    value: Any


_decode = msgspec.msgpack.Decoder(Record).decode


class Trace(Layer):
    """records every stimulus, so that the run can be replayed"""

    name = "trace"

    def __init__(self, write: Write | None = None) -> None:
        self.records: list[bytes] = []
        self._write = write or self._keep
        self._count = 0
        self._passing_up = False

    def record(self, kind: int, value: Any = None) -> None:
        self._count += 1
        self._write(_encode(Record(kind, value)))

    def _keep(self, record: bytes) -> None:
        if len(self.records) >= TRACE_RECORDS_MAX:
            raise Overflow(
                f"the trace holds {TRACE_RECORDS_MAX:,} records: write it to a file with connect(trace=PATH)"
            )
        self.records.append(record)

    def wrap_ports(self, ports: Ports) -> Ports:
        return Ports(
            clock=_TracedClock(ports.clock, self.record),
            random=_TracedRandom(ports.random, self.record),
            engine=_TracedEngine(ports.engine, self.record),
            store=ports.store,
            founding=None if ports.founding is None else _TracedFounding(ports.founding, self.record),
        )

    def down(self, frame: Frame) -> None:
        self.record(DOWN_WITHIN if self._passing_up else DOWN, frame)
        self.pass_down(frame)

    def event_down(self, event: Event) -> None:
        kind = EVENT_WITHIN if self._passing_up else EVENT
        self.record(kind, [type(event).__name__, msgspec.structs.astuple(event)])
        self.tell_down(event)

    def up(self, frame: Frame) -> None:
        self.record(UP)
        self._pass(partial(self.pass_up, frame))

    def event_up(self, event: Event) -> None:
        self.record(TOLD)
        self._pass(partial(self.tell_up, event))

    def _pass(self, up: Callable[[], None]) -> None:
        outer, self._passing_up = self._passing_up, True
        try:
            up()
        finally:
            self._passing_up = outer

    def settle(self) -> None:
        self.record(END)

    def stop(self) -> None:
        self.record(STOP)

    def stats(self) -> dict[str, Any]:
        return {"records": self._count}


class ReplayTop(Layer):
    """what the application did, from the trace"""

    name = "replay"

    def __init__(self, replay: Replay, stands_for: type[Layer]) -> None:
        self._replay = replay
        # By its name and headers, so that the stack has the fingerprint and the codec of the recorded one.
        self.name, self.headers = stands_for.name, stands_for.headers  # type: ignore[misc]

    def up(self, frame: Frame) -> None:
        self._replay.expect(UP)
        self._replay.calls(self, DOWN_WITHIN, EVENT_WITHIN)

    def event_up(self, event: Event) -> None:
        self._replay.expect(TOLD)
        self._replay.calls(self, DOWN_WITHIN, EVENT_WITHIN)

    def settle(self) -> None:
        self._replay.expect(END)

    def stop(self) -> None:
        self._replay.expect(STOP)


class _TracedClock:
    def __init__(self, clock: Any, record: Callable[[int, Any], None]) -> None:
        self._clock = clock
        self._record = record
        self._timers = 0
        self.call_soon = clock.call_soon

    def now(self) -> float:
        now: float = self._clock.now()
        self._record(NOW, now)
        return now

    def elapsed(self) -> float:
        elapsed: float = self._clock.elapsed()
        self._record(NOW, elapsed)
        return elapsed

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        number, self._timers = self._timers, self._timers + 1

        def fire() -> None:
            self._record(TIMER, number)
            callback()

        timer: Timer = self._clock.call_later(delay_s, fire)
        return timer


class _TracedRandom:
    """Random numbers are recorded as they are; ``shuffle`` and ``sample`` as the order that they made."""

    def __init__(self, random: Any, record: Callable[[int, Any], None]) -> None:
        self._random = random
        self._record = record

    def _noted(self, answer: Any) -> Any:
        self._record(RANDOM, answer)
        return answer

    def random(self) -> float:
        return float(self._noted(self._random.random()))

    def getrandbits(self, k: int, /) -> int:
        return int(self._noted(self._random.getrandbits(k)))

    def randrange(self, start: int, stop: int = 0) -> int:
        return int(self._noted(self._random.randrange(start, stop)))

    def choice(self, seq: Sequence[Any]) -> Any:
        return seq[self._noted(self._random.randrange(0, len(seq)))]

    def shuffle(self, x: list[Any]) -> None:
        order = list(range(len(x)))
        self._random.shuffle(order)
        x[:] = [x[at] for at in self._noted(order)]

    def sample(self, population: Sequence[Any], k: int) -> list[Any]:
        return [population[at] for at in self._noted(self._random.sample(range(len(population)), k))]


class _TracedEngine:
    def __init__(self, engine: Any, record: Callable[[int, Any], None]) -> None:
        self._engine = engine
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        def received(datagrams: list[Datagram]) -> None:
            self._record(DATAGRAMS, datagrams)
            receive(datagrams)

        await self._engine.open(received, room)

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        self._record(SENT, [list(datagrams), to])
        self._engine.send(datagrams, to)

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        self._record(SENT_ALL, list(datagrams))
        self._engine.send_all(datagrams)


class _TracedFounding:
    """What the lock of the machine answered."""

    def __init__(self, founding: Founding, record: Callable[[int, Any], None]) -> None:
        self._founding = founding
        self._record = record
        self.release = founding.release

    @property
    def listen_s(self) -> float:
        return self._founding.listen_s

    def claim(self) -> bool:
        return self._noted(self._founding.claim())

    def share(self) -> bool:
        return self._noted(self._founding.share())

    def _noted(self, answer: bool) -> bool:
        self._record(FOUNDING, answer)
        return answer


class Replay:
    """The outside world as the trace has it. Give ``ports`` to a stack of the same layers with ``ReplayTop`` above,
    then call ``run``."""

    def __init__(
        self,
        records: Iterable[bytes],
        address: Address,
        path_bytes: int,
        buffer_bytes: int,
        *,
        broadcasts: bool = True,
        long_bytes: int = 0,
        listen_s: float | None = None,
    ) -> None:
        self._records: list[Record] = [_decode(record) for record in records]
        self._timers: list[Callable[[], None]] = []
        self._parted: BadInput | None = None
        self._at = 0
        self.time = 0.0
        """What the clock said last."""
        self.name = "replay"
        self.broadcasts = broadcasts
        self.places: tuple[Address, ...] = ()
        self.local, self.heard_s = True, 0.0
        self.address = address
        self.path_bytes = path_bytes
        self.long_bytes = long_bytes or path_bytes
        self.buffer_bytes = buffer_bytes
        self.writable = True
        self.stats = EngineStats()
        self.listen_s = listen_s if listen_s is not None else 0.0
        founding = None if listen_s is None else self
        self.ports = Ports(clock=self, random=_ReplayRandom(self), engine=self, founding=founding)

    def expect(self, kind: int) -> Any:
        """The next record, which must be an answer or an effect of this kind; else this run is not the recorded one."""
        if self._at >= len(self._records):
            self._part(f"the trace ends at record {self._at}, in the middle of a stimulus: it was cut short")
        if self._records[self._at].kind != kind:
            self._part(f"the replay left the trace at record {self._at}: use the same release, stack and options")
        self._at += 1
        return self._records[self._at - 1].value

    def calls(self, top: Layer, down: int = DOWN, event: int = EVENT) -> None:
        """Make the calls of the application that the trace has next, as far as they are of these kinds."""
        while self._at < len(self._records) and self._records[self._at].kind in (down, event):
            record = self._records[self._at]
            self._at += 1
            if record.kind == down:
                frame = msgspec.convert(record.value, Frame)
                if frame.headers:  # layers below look at them
                    said: Any = functools.reduce(operator.or_, top.headers)
                    frame.headers = msgspec.convert(frame.headers, list[said])
                top.down(frame)
            else:
                name, values = record.value
                fields = [tuple(value) if isinstance(value, list) else value for value in values]
                top.tell_down(_EVENTS[name](*fields))

    def run(self, stack: Stack, receive: Receive, top: Layer) -> int:
        """Feed every recorded stimulus to a started stack; returns how many records matched."""
        stimulus = stack.run
        while self._at < len(self._records):
            record = self._records[self._at]
            if record.kind in (DOWN, EVENT):
                stimulus(lambda: self.calls(top))
            elif record.kind == TIMER:
                self._at += 1
                self._timers[record.value]()
            elif record.kind == DATAGRAMS:
                self._at += 1
                datagrams = [(bytes(data), (host, port)) for data, (host, port) in record.value]
                stimulus(partial(receive, datagrams))
            elif record.kind == END:
                stack.settle()
            elif record.kind == STOP:
                stack.stop()
            else:
                self._part(f"the replay did less than the trace at record {self._at}: use the same release and stack")
            if self._parted is not None:  # raised within a stack that takes it for a bad frame and goes on
                raise self._parted
        return self._at

    def _part(self, sentence: str) -> NoReturn:
        """From here on the replay differs from the recorded run; the first reason is kept and told."""
        self._parted = self._parted or BadInput(sentence)
        raise self._parted

    # The clock

    def now(self) -> float:
        self.time = float(self.expect(NOW))
        return self.time

    def elapsed(self) -> float:
        return float(self.expect(NOW))

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self._timers.append(callback)
        return _NoTimer()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """The application's batches come from the trace already closed."""

    # The lock

    def claim(self) -> bool:
        return bool(self.expect(FOUNDING))

    share = claim

    def release(self) -> None: ...

    # The engine

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None: ...

    async def close(self) -> None: ...

    def set_peers(self, peers: Sequence[Address]) -> None: ...

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        self._same(self.expect(SENT), [list(datagrams), list(to)])

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        self._same(self.expect(SENT_ALL), list(datagrams))

    def _same(self, recorded: Any, replayed: Any) -> None:
        if recorded != replayed:
            self._part(f"record {self._at - 1} was sent otherwise in the replay: use the same release and stack")


class _ReplayRandom:
    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def _next(self) -> Any:
        return self._replay.expect(RANDOM)

    def random(self) -> float:
        return float(self._next())

    def getrandbits(self, k: int, /) -> int:
        return int(self._next())

    def randrange(self, start: int, stop: int = 0) -> int:
        return int(self._next())

    def choice(self, seq: Sequence[Any]) -> Any:
        return seq[self._next()]

    def shuffle(self, x: list[Any]) -> None:
        x[:] = [x[at] for at in self._next()]

    def sample(self, population: Sequence[Any], k: int) -> list[Any]:
        return [population[at] for at in self._next()]


class _NoTimer:
    def cancel(self) -> None:
        """A cancelled timer is one that the trace never fires."""


def read_records(data: bytes) -> Iterator[bytes]:
    """The records of a trace file, each behind four bytes of length."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if at + 4 + size > len(data):
            raise BadInput(f"the trace ends in the middle of a record at byte {at}: it was cut short")
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def file_writer(write: Write) -> Write:
    """A ``write`` for ``Trace`` that puts the length before each record."""
    return lambda record: write(len(record).to_bytes(4, "big") + record)
