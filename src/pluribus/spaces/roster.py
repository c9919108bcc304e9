"""The roster: the members of a space of the kinds *views* and *partitioned*, agreed by all, in numbered epochs.

It is a small replicated state machine on the safe order, so it goes on in the primary only, and every member sees the
same epochs in the same order. Members enter, and a member that sees that another is gone strikes it off. An epoch is
never used twice, even if all members of the primary are lost: an entering member says which epoch it has seen.

An epoch is *opened* when all its members have taken its tuples over; no member acts in it before. So tuples of an epoch
before the last opened one are out of date; if members have only such tuples, the space is lost. A roster that begins
anew has another ``born``: a member that comes from an earlier roster gives up its tuples, and says that they are lost.
A roster that goes on with an older state, because a primary was forced, learns from entering members which epochs were
opened meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
MEMBERS_MAX = 1_000


class Enter(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """``worker`` is the number that this member's operations carry, drawn when it opened the space. ``holds``: it keeps
    tuples. ``settings`` must be the same at all members."""

    member: Number
    worker: Number
    holds: bool
    seen: Number = 0
    settings: str = ""
    opened: Number = 0
    """The last epoch that was opened, as far as this member has seen."""
    born: Number = 0
    """The roster of which it has seen that; 0: none."""


class Strike(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """These members are gone."""

    members: list[Number]


class Open(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """All members have the tuples of this epoch."""

    epoch: Number


class RosterEntry(msgspec.Struct, frozen=True, array_like=True):
    member: Number
    worker: Number
    holds: bool
    since: Number = 0
    """The epoch in which it entered: if it changes, the member was struck off meanwhile."""


class Epoch(msgspec.Struct, frozen=True, array_like=True):
    number: Number
    entries: tuple[RosterEntry, ...]
    settings: str = ""
    opened: Number = 0
    """The last epoch that was opened, perhaps this one."""
    born: Number = 0
    """The worker that entered first: a roster that begins anew has another one."""

    def follows(self, before: Epoch | None) -> bool:
        """False if tuples of ``before`` are of a roster that is gone."""
        return before is None or not before.born or before.born == self.born

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(entry.member for entry in self.entries)

    @property
    def holders(self) -> tuple[int, ...]:
        """Those that keep tuples, eldest first."""
        return tuple(entry.member for entry in self.entries if entry.holds)


_word = msgspec.msgpack.Decoder(Enter | Strike | Open)
_epoch = msgspec.msgpack.Decoder(Epoch)
encode = msgspec.msgpack.Encoder().encode


class Roster:
    """The ``StateMachine`` for ``bus.replica``. ``changed`` is called when there may be another epoch."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.epoch = Epoch(0, ())
        self._changed = changed

    def apply(self, index: int, command: bytes) -> bytes:
        refused = self._applied(command)
        self._changed()
        return refused

    def _applied(self, command: bytes) -> bytes:
        word = _word.decode(command)
        number, entries = self.epoch.number, list(self.epoch.entries)
        settings, opened, born = self.epoch.settings, self.epoch.opened, self.epoch.born
        if isinstance(word, Open):
            if word.epoch == number:
                self.epoch = Epoch(number, self.epoch.entries, settings, number, born)
        elif isinstance(word, Enter):
            if entries and word.settings != settings:
                return f"this space has {settings or 'no settings'}, not {word.settings or 'none'}".encode()
            known = [(one.member, one.worker, one.holds) for one in entries]
            if (word.member, word.worker, word.holds) not in known or word.seen > number:
                entries = [one for one in entries if one.member != word.member]
                if len(entries) >= MEMBERS_MAX:
                    return f"{MEMBERS_MAX:,} members have this space open: use another".encode()
                if not number:
                    born, opened = word.worker, word.seen + 1 if word.seen else 0
                elif word.seen > number and word.born in (
                    0,
                    born,
                ):  # this is an older state, with which a forced primary goes on
                    opened = max(opened, word.opened)
                number = max(number, word.seen) + 2
                entries.append(RosterEntry(word.member, word.worker, word.holds, number))
                self.epoch = Epoch(number, tuple(entries), word.settings, opened, born)
        else:
            left = [one for one in entries if one.member not in word.members]
            if len(left) < len(entries):
                self.epoch = Epoch(number + 1, tuple(left), settings, opened, born)
        return b""

    def snapshot(self) -> bytes:
        return encode(self.epoch)

    def restore(self, state: bytes) -> None:
        self.epoch = _epoch.decode(state) if state else Epoch(0, ())
        self._changed()
