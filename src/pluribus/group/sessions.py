"""The session table: which commands were applied, and what became of them, as part of a replica's state.

A session is one caller. It numbers its commands, and says with each below which number it has all answers. The table
keeps the results from there on; what is below is over. Everything here is a function of the commands, so that every
replica has the same table.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

import msgspec

from ..core.frame import Number

SESSIONS_MAX = 10_000
RESULTS_MAX = 2_048
"""Results that are kept for one session; one with more under way loses the oldest."""
FIRST_TIME = -1


class Command(msgspec.Struct, array_like=True):
    """What travels in the log for one call."""

    session: Number
    sequence: Number
    settled: Number
    """The caller has the answers to everything below."""
    generation: Annotated[int, msgspec.Meta(ge=-1)]
    """Of the log in which it was first submitted, if this is not the first time."""
    command: bytes

    def encoded(self) -> bytes:
        return _encode(self)

    @staticmethod
    def decoded(encoded: bytes) -> Command | None:
        try:
            return _decode_command(encoded)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None


class SessionEntry(msgspec.Struct, array_like=True, frozen=True):
    """What became of a command."""

    fine: bool
    result: bytes
    lost: bool = False
    """Nobody knows."""


LOST = SessionEntry(False, b"", True)


class Session(msgspec.Struct, array_like=True):
    settled: int
    results: dict[int, SessionEntry]


class SessionTable(msgspec.Struct, array_like=True):
    forgotten: bool
    sessions: list[tuple[int, Session]]
    machine: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode_command = msgspec.msgpack.Decoder(Command).decode
_decode_table = msgspec.msgpack.Decoder(SessionTable).decode


class Sessions:
    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._forgotten = False
        """Whether a session ever had to make room: then one that is not here may have been."""

    def known(self, command: Command, generation: int) -> SessionEntry | None:
        """What became of a command before, or None if it is to be applied now."""
        session = self._sessions.get(command.session)
        found = session.results.get(command.sequence) if session is not None else None
        if found is not None:
            return found
        if session is not None and command.sequence < session.settled:
            return LOST
        if command.generation == FIRST_TIME:
            return None
        if command.generation != generation or (session is None and self._forgotten):
            return LOST
        return None

    def keep(self, command: Command, entry: SessionEntry) -> None:
        session = self._sessions.get(command.session)
        if session is None:
            session = self._sessions[command.session] = Session(command.settled, {})
            if len(self._sessions) > self._sessions_max:
                self._sessions.popitem(last=False)
                self._forgotten = True
        self._sessions.move_to_end(command.session)
        session.results[command.sequence] = entry
        settled = max(session.settled, command.settled)
        if len(session.results) > RESULTS_MAX:
            settled = max(settled, min(session.results) + 1)
        if settled > session.settled:
            session.settled = settled
            for sequence in [old for old in session.results if old < settled]:
                del session.results[sequence]

    def __len__(self) -> int:
        return len(self._sessions)

    def saved(self, machine: bytes) -> bytes:
        return _encode(SessionTable(self._forgotten, list(self._sessions.items()), machine))

    @staticmethod
    def restored(state: bytes, sessions_max: int = SESSIONS_MAX) -> tuple[Sessions, bytes]:
        """The table, and the machine's own state; of no bytes at all, both as they are before the first command."""
        sessions = Sessions(sessions_max)
        if not state:
            return sessions, b""
        table = _decode_table(state)
        sessions._forgotten = table.forgotten
        sessions._sessions.update(table.sessions)
        return sessions, table.machine

    def validate(self) -> None:
        assert len(self._sessions) <= self._sessions_max
        for session in self._sessions.values():
            assert len(session.results) <= RESULTS_MAX
            assert all(sequence >= session.settled for sequence in session.results)
