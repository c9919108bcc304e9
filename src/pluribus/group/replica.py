"""A replica: one state machine that many members run alike, by applying the same commands in the same order.

Theory of operation
-------------------
Commands go to a log port, which orders them and hands them to every replica (``log``; ``safelog`` is the volatile one,
the keepers' is durable). A replica applies them. A caller gets the result of its command once, after its own replica
has applied it. So a call takes effect between its beginning and its end: calls are *linearizable*.

*Exactly once.* A log may report that it is uncertain whether a command was committed. Then the command is submitted
again with the same identity, (session, sequence). Every replica keeps a table of sessions with the results that may
still be asked for; a command that is in the table is answered from there and not applied again. The table is part of
the state, so joiners and restarted replicas have it too. With each command a caller says below which sequence it has
all answers, so the table holds only results of calls under way. The session that was silent longest makes room for a
new one.

A repeated command names the generation of the log in which it was first submitted. If the state was lost since, or the
session was forgotten, it is unknown whether the command was applied. Then it is not applied again, and the caller gets
``Uncertain``.

*Reads* are evaluated here. An ordered read waits for a barrier first: everything that was committed anywhere before it
began is applied by then. A stale read does not wait.

Promises: linearizable calls and ordered reads; every call ends once, with a result, an error of the machine
(``Refused``), or ``Uncertain``. Assumes a log that orders alike everywhere, and a machine that is a function of its
commands; an exception that it raises is a result like any other, but for those that depend on the process (``STOPS``):
this replica stops, and callers learn nothing of it.

Bounded: ``SESSIONS_MAX`` sessions, ``CALLS_MAX`` calls under way a session; then ``Overflow``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from ..core.errors import Closed, Overflow, PluribusError, Refused, Uncertain
from .acknowledged import Runs
from .log import STOPS, LogPort, StateMachine
from .sessions import FIRST_TIME, Command, SessionEntry, Sessions

log = logging.getLogger(__name__)

CALLS_MAX = 1_024
UNSETTLED_MAX = 2_000

CallId = tuple[int, int]
"""Session and sequence: names one call for ever."""

Answer = Callable[[bytes, PluribusError | None], None]
"""Called once with the result of a call, or with an error."""

Ready = Callable[[PluribusError | None], None]
"""Called once when a read may be made, or with the reason why not."""

M = TypeVar("M", bound=StateMachine)


class Call(msgspec.Struct, eq=False):
    """A call that has no result yet."""

    command: bytes
    answer: Answer
    generation: int
    """The generation of the log when the call was first submitted."""
    submitted: Callable[[int, PluribusError | None], None] | None = None
    repeats: bool = True
    uncertain: bool = False
    """Whether it may have been committed before."""


class LoggedMachine(Generic[M]):
    """``machine`` on ``log``. ``session`` is a random number that nobody else has."""

    def __init__(self, name: str, port: LogPort, machine: M, session: int) -> None:
        self.name = name
        self.machine = machine
        self.session = session
        self.on_applied: Callable[[int, int], None] = lambda first, count: None
        """Called after each batch, for callers that wait for an index."""
        self.on_failed: Callable[[], None] = self.close
        """Called when this machine may differ from the others, because the process could not apply a command."""
        self._halted = False
        self._log = port
        self._sessions = Sessions()
        self._next = 0
        self._calls: dict[CallId, Call] = {}
        self._unsettled: dict[int, int] = {}
        """Sequences of this session without a certain answer, in their order, with the generation in which they were
        first submitted. Uncertain ones stay as long as there is room, because they may be asked for again."""
        self._reads: dict[Ready, None] = {}
        self.acknowledged = Runs()
        """Calls that were answered here, in the present generation of the log."""
        self._closed = False
        self.repeated = 0
        port.on_commit = self._commit
        port.on_snapshot = self._snapshot
        port.on_restore = self._restore

    @property
    def applied(self) -> int:
        """How many commands this replica has applied: those below are in its state."""
        return self._log.applied

    @property
    def generation(self) -> int:
        """Names the log from which the state comes: another number means that the log began anew. Durable logs never
        do."""
        return getattr(self._log, "generation", 0)

    # Calling

    def new_id(self) -> CallId:
        """A new identity, which counts as unsettled until a call with it has a certain answer."""
        self._next += 1
        self._unsettled[self._next] = self.generation
        if len(self._unsettled) > UNSETTLED_MAX:
            self._forget_oldest()
        return (self.session, self._next)

    def call(self, command: bytes, answer: Answer, *, id: CallId | None = None, repeat: bool = True) -> CallId:
        """Have a command applied; ``answer`` gets its result. With the ``id`` of a call that ended as ``Uncertain`` the
        command is applied only if it was not applied then. Without ``repeat`` it is not submitted again when the log is
        uncertain, and ends as ``Uncertain`` at once."""
        if self._closed:
            raise Closed(f"the replica {self.name!r} is closed: open it again")
        if len(self._calls) >= CALLS_MAX:
            raise Overflow(f"{CALLS_MAX:,} calls of {self.name!r} are under way: await some of them")
        key = id if id is not None else self.new_id()
        if key in self._calls:
            raise Overflow(f"the call {key} of {self.name!r} is under way: await it")
        session, sequence = key
        generation = self.generation
        if session == self.session:
            generation = self._unsettled.get(sequence, generation)
        self._calls[key] = call = Call(command, answer, generation, repeats=repeat, uncertain=id is not None)
        try:
            self._submit(key, call)
        except PluribusError:
            del self._calls[key]
            if id is None:
                self._unsettled.pop(sequence, None)
            raise
        return key

    def _forget_oldest(self) -> None:
        """Forget the oldest sequence that no caller waits for; a repeated call of it will be uncertain again."""
        oldest = next(sequence for sequence in self._unsettled if (self.session, sequence) not in self._calls)
        del self._unsettled[oldest]

    def _submit(self, key: CallId, call: Call) -> None:
        session, sequence = key
        settled = next(iter(self._unsettled), 0) if session == self.session else 0
        generation = call.generation if call.uncertain else FIRST_TIME
        command = Command(session, sequence, settled, generation, call.command)

        def done(index: int, error: PluribusError | None) -> None:
            if self._calls.get(key) is call and error is not None:
                self._failed(key, call, error)

        call.submitted = done
        self._log.submit(command.encoded(), done)

    def _failed(self, key: CallId, call: Call, error: PluribusError) -> None:
        if not isinstance(error, Uncertain) or not call.repeats or self._closed:
            self._end(key, b"", _named(error, key))
            return
        call.uncertain = True
        self.repeated += 1
        try:
            self._submit(key, call)
        except PluribusError as worse:
            self._end(key, b"", _named(Uncertain(f"it could not be submitted again: {worse}"), key))

    def give_up(self, key: CallId) -> bool:
        """The caller waits no longer. True if the command never left this member, so that it is certain not to be
        applied."""
        call = self._calls.pop(key, None)
        withdraw = getattr(self._log, "withdraw", None)
        if call is None or call.uncertain or withdraw is None or not withdraw(call.submitted):
            return False
        self._settle(key)
        return True

    def _end(self, key: CallId, result: bytes, error: PluribusError | None) -> None:
        call = self._calls.pop(key, None)
        if not isinstance(error, Uncertain):
            self._settle(key)
        if error is None or isinstance(error, Refused):
            self.acknowledged.add(key[0], key[1], key[1] + 1)
        if call is not None:
            call.answer(result, error)

    def _settle(self, key: CallId) -> None:
        if key[0] == self.session:
            self._unsettled.pop(key[1], None)

    def read(self, ready: Ready) -> None:
        """``ready`` is called when the state is not older than this call."""

        def done(index: int, error: PluribusError | None) -> None:
            if ready not in self._reads:
                return
            if isinstance(error, Uncertain) and not self._closed:
                self._log.barrier(done)  # it changes nothing, so it may be repeated
            else:
                del self._reads[ready]
                ready(error)

        if len(self._reads) >= CALLS_MAX:
            raise Overflow(f"{CALLS_MAX:,} reads of {self.name!r} are under way: await some of them")
        self._reads[ready] = None
        try:
            self._log.barrier(done)
        except PluribusError:
            del self._reads[ready]
            raise

    def give_up_read(self, ready: Ready) -> None:
        self._reads.pop(ready, None)

    def close(self) -> None:
        self._closed = True
        for key, call in list(self._calls.items()):
            if self.give_up(key):
                call.answer(b"", Closed(f"the replica {self.name!r} was closed before the call was sent"))
            else:
                call.answer(b"", _named(Uncertain(f"the replica {self.name!r} was closed before the answer"), key))
        reads, self._reads = self._reads, {}
        for ready in reads:
            ready(Closed(f"the replica {self.name!r} was closed before it could be read"))

    # Applying

    def _commit(self, first: int, encoded: Sequence[bytes]) -> None:
        if self._halted:
            return
        for index, one in enumerate(encoded, first):
            command = Command.decoded(one)
            if command is None:
                log.error("replica %r was handed a command that is none; all others skip it too", self.name)
                continue
            entry = self._sessions.known(command, self.generation)
            if entry is None:
                try:
                    entry = self._apply(index, command.command)
                except STOPS:
                    log.exception("the replica %r is left: this member could not apply command %d", self.name, index)
                    self._halted = True
                    self.on_failed()
                    return
                self._sessions.keep(command, entry)
            self._answer((command.session, command.sequence), entry)
        self.on_applied(first, len(encoded))

    def _apply(self, index: int, command: bytes) -> SessionEntry:
        try:
            return SessionEntry(True, self.machine.apply(index, command))
        except STOPS:
            raise
        except Exception as error:  # noqa: BLE001 - the same everywhere, so it is a result
            return SessionEntry(False, f"{type(error).__name__}: {error}".encode())

    def _answer(self, key: CallId, entry: SessionEntry) -> None:
        if key not in self._calls:
            return
        if entry.lost:
            self._end(key, b"", _named(Uncertain("the state that knew of it is lost"), key))
        elif entry.fine:
            self._end(key, entry.result, None)
        else:
            self._end(key, b"", Refused(f"{self.name!r} refused the command: {entry.result.decode()}"))

    # State

    def _snapshot(self) -> bytes:
        return self._sessions.saved(self.machine.snapshot())

    def _restore(self, index: int, state: bytes) -> None:
        self._sessions, machine = Sessions.restored(state)
        self.machine.restore(machine)

    def validate(self) -> None:
        assert len(self._calls) <= CALLS_MAX and len(self._unsettled) <= UNSETTLED_MAX
        assert list(self._unsettled) == sorted(self._unsettled)
        self._sessions.validate()


def _named(error: PluribusError, key: CallId) -> PluribusError:
    """The error with the identity of the call, by which an uncertain call can be repeated."""
    return Uncertain(str(error), key) if isinstance(error, Uncertain) else error
