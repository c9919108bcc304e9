"""Moving ranges when an epoch begins.

Every member tells every other which ranges it has. The owner of a range takes over the state of the latest epoch with
most steps: its own, or that of another member, which it pulls piece by piece (``pieces``). Then it has the members that
keep copies fetch the range; those that have this very version need no piece. If no member has the state of the last
opened epoch, the range is lost, and begins empty, with the registrations that others know.

A member is ready when it has all its ranges, and their copies are stored. When all are ready, the roster opens the
epoch; nobody serves before, so no range changes while it moves.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

import msgspec

from ..roster import Epoch
from . import words
from .pieces import RangePieces
from .ranges import RangeState
from .registry import Registry
from .words import Version, Word

PATIENCE_S, PATIENCE_S_MAX = 0.3, 5.0
"""Seconds after which a piece is asked for again, at first and at most: they double while nothing comes."""
COUNTS_S = 1.0
"""Seconds between two words about how many tuples ranges have."""
PULLS_MAX = 16
"""Ranges of which one member pulls pieces at a time."""


class RangeHolder(Protocol):
    """The server."""

    me: int
    epoch: Epoch | None
    states: dict[int, RangeState]
    placed: list[list[int]]
    registry: Registry

    @property
    def opened(self) -> bool: ...

    def send(self, member: int, word: Word) -> None: ...

    def owned(self) -> list[int]: ...


class Pulling(msgspec.Struct):
    """A range that this member pulls. ``version``: what its owner takes over; None: this member is to keep a copy."""

    source: int
    version: Version | None
    again_at: float
    next: int = 0
    """The piece that it needs now."""
    asked: bool = False
    patience_s: float = PATIENCE_S
    made: RangeState | None = None


class Moving:
    """The part of one server in the moves of one epoch. ``enter`` begins another."""

    def __init__(self, server: RangeHolder) -> None:
        self._server = server
        self._holdings: dict[int, dict[int, tuple[int, int, int, int]]] = {}
        self._counts: dict[int, int] = {}
        """By range: how many tuples it had, as far as this member was told."""
        self._counts_told: dict[int, int] = {}
        self._count_at = 0.0
        self._pulling: dict[int, Pulling] = {}
        self._pieces: dict[int, RangePieces] = {}
        """Of ranges that are pulled from here."""
        self._storing: dict[int, tuple[Version | None, set[int]]] = {}
        """By range of this member: its version, and the members that have not said that they have their copy."""
        self._stored: set[int] = set()
        """Ranges of others of which a copy is here."""
        self._lost: dict[int, int] = {}
        self.outdated: dict[int, int] = {}
        """Ranges that were lost while this member was away, with how many tuples of each it gave up."""
        self._decided = False
        """True if all members have told what they have."""

    @property
    def ready(self) -> bool:
        """True if this member has the state of all its ranges in this epoch, and all copies of them are stored."""
        return self._decided and not (self._pulling or self._storing or self._server.registry.inquiring)

    @property
    def lost(self) -> dict[int, int]:
        """Ranges of this member of which no state was left, with about how many tuples each had."""
        return dict(self._lost)

    @property
    def _epoch(self) -> Epoch:
        assert self._server.epoch is not None
        return self._server.epoch

    def enter(self) -> None:
        """Forget what was under way."""
        self._holdings.clear()
        self._pulling.clear()
        self._pieces.clear()
        self._storing.clear()
        self._stored.clear()
        self._lost.clear()
        self._decided = False
        self._counts_told.clear()

    def open(self) -> None:
        """The epoch is open: from now on ranges change."""
        self._pieces.clear()

    def tell(self) -> None:
        """Tell every member which ranges this member has."""
        states = self._server.states
        mine = {number: (state.epoch, state.steps, len(state.tuples), state.born) for number, state in states.items()}
        for member in self._epoch.members:
            self._server.send(member, words.Holdings(self._epoch.number, mine))

    def tell_counts(self, now: float) -> None:
        """Tell the others, once in a while, how many tuples the ranges of this member have."""
        if now < self._count_at:
            return
        self._count_at = now + COUNTS_S
        counts = {number: len(self._server.states[number].tuples) for number in self._server.owned()}
        news = {number: count for number, count in counts.items() if self._counts_told.get(number) != count}
        self._counts_told = counts
        for member in self._epoch.members if news else ():
            if member != self._server.me:
                self._server.send(member, words.Counts(self._epoch.number, news))

    def repeat(self, now: float) -> None:
        """Repeat words that were not answered."""
        self.tell()  # a member that entered the epoch later has not received it yet
        self._ask(now)
        self._server.registry.inquire_again()
        for number in self._storing:
            self._have_fetched(number)

    def heard(self, sender: int, word: Word, now: float) -> None:
        match word:
            case words.Holdings():
                self._heard_holdings(sender, word, now)
            case words.Pull():
                self._send_piece(sender, word, now)
            case words.State():
                self._arrived(sender, word, now)
            case words.Fetch():
                self._fetch(sender, word, now)
            case words.Stored(_, number):
                if number in self._storing:
                    waiting = self._storing[number][1]
                    waiting.discard(sender)
                    if not waiting:
                        del self._storing[number]
            case words.Counts(_, ranges):
                self._counts.update(ranges)
            case words.Inquire():
                self._server.registry.inquired(sender, now)
            case words.Registered():
                found = self._server.registry.registered(sender, word)
                if found is not None:
                    self._begin_lost(found, now)
            case _:
                pass

    def _heard_holdings(self, sender: int, word: words.Holdings, now: float) -> None:
        if self._decided:
            return
        self._holdings[sender] = dict(word.ranges)
        if set(self._holdings) >= set(self._epoch.members):
            self._decided = True
            self._give_up_outdated()
            for number in self._server.owned():
                self._take_over(number, now)
            for held in self._holdings.values():
                for number, (_, _, count, _) in held.items():
                    self._counts[number] = count
            if self._lost:
                self._server.registry.inquire()

    def _take_over(self, number: int, now: float) -> None:
        epoch, states = self._epoch, self._server.states
        known = [(held[number][:2], member) for member, held in self._holdings.items() if number in held]
        valid = [one for one in known if one[0][0] >= max(epoch.opened, 1)]
        if not valid:
            states[number] = RangeState(0, epoch.number)
            if epoch.opened:
                self._lost[number] = self._counts.get(number, 0)
            else:
                self._hand_out(number, None)
            return
        best = max(valid)[0]
        if (best, self._server.me) in valid:
            states[number].epoch = epoch.number
            self._hand_out(number, best)
        else:
            source = min(member for version, member in valid if version == best)
            self._pulling[number] = Pulling(source, best, now)
            self._ask(now)

    def _give_up_outdated(self) -> None:
        """Give up ranges that others have begun anew, because they were lost to them with this member."""
        since, states = max(self._epoch.opened, 1), self._server.states
        for number in [number for number, state in states.items() if state.epoch < since]:
            born = [held[number][3] for held in self._holdings.values() if number in held and held[number][0] >= since]
            if born and max(born) > states[number].epoch:
                tuples = len(states.pop(number).tuples)
                if tuples:
                    self.outdated[number] = tuples

    def _begin_lost(self, registered: dict[words.Name, words.Watching], now: float) -> None:
        """Lost ranges begin empty, with the registrations that stand at all ranges."""
        for number in self._lost:
            for name, made in registered.items():
                self._server.states[number].watches.add(name, made, now, gap=True)
            self._hand_out(number, None)

    # Pulling.

    def _ask(self, now: float) -> None:
        """Ask for the next piece of each of the first ranges that this member pulls, if it is time."""
        for number, pulling in islice(self._pulling.items(), PULLS_MAX):
            if pulling.again_at <= now:
                if pulling.asked:
                    pulling.patience_s = min(2 * pulling.patience_s, PATIENCE_S_MAX)
                pulling.asked, pulling.again_at = True, now + pulling.patience_s
                self._server.send(pulling.source, words.Pull(self._epoch.number, number, pulling.next))

    def _send_piece(self, to: int, word: words.Pull, now: float) -> None:
        state = self._server.states.get(word.range)
        if state is None or self._server.opened:
            return
        pieces = self._pieces.get(word.range)
        if pieces is None or pieces.state is not state:
            pieces = self._pieces[word.range] = RangePieces(state)
        piece = pieces.piece(self._epoch.number, word.range, word.piece, now)
        if piece is not None:
            self._server.send(to, piece)

    def _arrived(self, sender: int, word: words.State, now: float) -> None:
        pulling = self._pulling.get(word.range)
        if pulling is None or pulling.source != sender or pulling.next != word.piece:
            return
        made = pulling.made = pulling.made or RangeState.arriving(word)
        made.arrived(word, now)
        pulling.next += 1
        pulling.asked, pulling.again_at = False, now
        if word.last:
            del self._pulling[word.range]
            self._server.states[word.range] = made
            if pulling.version is None:
                self._is_stored(word.range, sender)
            else:
                self._hand_out(word.range, pulling.version)
        self._ask(now)

    # Copies.

    def _hand_out(self, number: int, version: Version | None) -> None:
        """Have the members that keep copies of a range fetch it. ``version``: who has it has the range already."""
        others = set(self._server.placed[number][1:])
        if others:
            self._storing[number] = (version, others)
            self._have_fetched(number)

    def _have_fetched(self, number: int) -> None:
        version, members = self._storing[number]
        for member in sorted(members):
            self._server.send(member, words.Fetch(self._epoch.number, number, version))

    def _fetch(self, owner: int, word: words.Fetch, now: float) -> None:
        number, state = word.range, self._server.states.get(word.range)
        if number in self._stored:
            self._is_stored(number, owner)
        elif number in self._pulling or self._server.placed[number][:1] != [owner] or self._server.opened:
            return
        elif state is not None and (state.epoch, state.steps) == word.version:
            state.epoch = self._epoch.number
            self._is_stored(number, owner)
        else:
            self._pulling[number] = Pulling(owner, None, now)
            self._ask(now)

    def _is_stored(self, number: int, owner: int) -> None:
        self._stored.add(number)
        self._server.send(owner, words.Stored(self._epoch.number, number))
