"""Ordered sessions: a command that is sent twice is done once, and commands of a publisher are done in its order.

In the sessions of ``group.sessions`` calls may overtake each other; commands of a publisher must not. Here a session is
a stream.

A publisher names its session, a random number, and counts its commands from 1. The table of sessions is part of the
replicated state, so every replica decides alike, and after any change of leaders:

- the next number is done, and its result is kept for a while;
- a number that was done is not done again, and gets the result of the first time;
- a number beyond the next one is refused: an earlier command was lost on the way, and the order would change. The
answer
  says which number is the next.

A publisher with several commands under way that loses an answer sends all unanswered ones again, in order, with the
same numbers. A session that was forgotten, because too many others came after it, is refused as well: its publisher
cannot know what became of its last commands, and is told so (``Uncertain``).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..core.errors import MalformedFrame
from .log import StateMachine

SESSIONS_MAX = 10_000
"""Sessions that are remembered; the one that was used longest ago is forgotten first."""
RESULTS_MAX = 128
"""Results that are kept for a session: as many commands may be under way."""

DONE, REFUSED = 0, 1


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a command with an identity: ``DONE`` with its result, now or earlier; or ``REFUSED``."""

    status: int
    next: int
    """The number that the session's next command must have; 1 for a session that is not known."""
    result: bytes = b""
    again: bool = False
    """It had been done before."""


class Identified(msgspec.Struct, frozen=True, array_like=True):
    """A command with its identity, as it travels."""

    session: int
    sequence: int
    command: bytes


_encode = msgspec.msgpack.encode
_identified = msgspec.msgpack.Decoder(Identified)
_outcome = msgspec.msgpack.Decoder(Outcome)


def identified(session: int, sequence: int, command: bytes) -> bytes:
    return _encode(Identified(session, sequence, command))


def outcome_of(answer: bytes) -> Outcome:
    try:
        return _outcome.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"an answer that is no outcome of a session: {error}") from None


class _Session(msgspec.Struct, array_like=True):
    last: int = 0
    results: dict[int, bytes] = {}


def _nobody(shard: int) -> None:
    """The owner keeps the table in one piece and need not know what changes."""


class OrderedSessions:
    """The table of sessions. What it forgets depends only on the commands that it saw.

    It is kept in ``shards``, by session, so that a snapshot writes only what changed: ``touch`` is called with the
    number of a shard before that changes.
    """

    def __init__(
        self,
        sessions_max: int = SESSIONS_MAX,
        results_max: int = RESULTS_MAX,
        touch: Callable[[int], None] = _nobody,
        shards: int = 1,
    ) -> None:
        self._sessions_max = -(-sessions_max // shards)
        self._results_max = results_max
        self._touch = touch
        self._shards: list[dict[int, _Session]] = [{} for _ in range(shards)]
        self._count = shards

    def next(self, session: int) -> int:
        """The number of the command that may be done now."""
        found = self._shards[session % self._count].get(session)
        return 1 if found is None else found.last + 1

    def earlier(self, session: int, sequence: int) -> Outcome | None:
        """The outcome of a command that was sent before; None if it is to be done now."""
        found = self._shards[session % self._count].get(session)
        last = 0 if found is None else found.last
        if sequence == last + 1:
            return None
        if found is None or sequence > last or sequence < 1:
            return Outcome(REFUSED, last + 1)
        return Outcome(DONE, last + 1, found.results.get(sequence, b""), True)

    def record(self, session: int, sequence: int, result: bytes = b"") -> None:
        """A command was done. If several were and nobody asks for their results, the last is enough."""
        shard = session % self._count
        self._touch(shard)
        table = self._shards[shard]
        found = table.pop(session, None) or _Session(0, {})
        table[session] = found
        found.last = sequence
        if result:
            found.results[sequence] = result
            while len(found.results) > self._results_max:
                del found.results[next(iter(found.results))]
        if len(table) > self._sessions_max:
            del table[next(iter(table))]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def count(self, shard: int) -> int:
        return len(self._shards[shard])

    def saved(self, shard: int) -> bytes:
        return _encode(list(self._shards[shard].items()))

    def restore_shard(self, shard: int, state: bytes) -> None:
        self._shards[shard] = dict(msgspec.msgpack.decode(state, type=list[tuple[int, _Session]]) if state else [])

    def snapshot(self) -> bytes:
        """Of a table that is in one shard."""
        return self.saved(0)

    def restore(self, state: bytes) -> None:
        self.restore_shard(0, state)


class OnceMachine:
    """A state machine whose commands carry identities: each is done once. What it answers is an ``Outcome``."""

    def __init__(self, machine: StateMachine, sessions: OrderedSessions | None = None) -> None:
        self.machine = machine
        self.sessions = sessions if sessions is not None else OrderedSessions()

    def apply(self, index: int, command: bytes) -> bytes:
        try:
            asked = _identified.decode(command)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _encode(Outcome(REFUSED, 0))
        outcome = self.sessions.earlier(asked.session, asked.sequence)
        if outcome is None:
            result = self.machine.apply(index, asked.command)
            self.sessions.record(asked.session, asked.sequence, result)
            outcome = Outcome(DONE, asked.sequence + 1, result)
        return _encode(outcome)

    def snapshot(self) -> bytes:
        return _encode((self.sessions.snapshot(), self.machine.snapshot()))

    def restore(self, state: bytes) -> None:
        sessions, machine = msgspec.msgpack.decode(state, type=tuple[bytes, bytes]) if state else (b"", b"")
        self.sessions.restore(sessions)
        self.machine.restore(machine)
