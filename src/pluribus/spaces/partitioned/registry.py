"""A server's part in registrations: they are made, listened to, renewed and ended, and brought to lost ranges.

What must be kept is state of the ranges (``watches``). Only the listeners that wait here for events are not: they ask
again when an epoch begins, and every second. A listener is told of an event when all copies have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ..roster import Epoch
from ..watching import REGISTRATIONS_MAX, Watched, first_of
from . import words
from .ranges import RangeState
from .words import Change, Name, Watching, Word

LISTENERS_MAX = 10_000
"""Listeners that wait at one server; the first of more are forgotten, and ask again."""

Say = Callable[[], None]
Holder = tuple[int, int]
"""A worker and its request."""


class RangeServer(Protocol):
    """The server."""

    epoch: Epoch | None
    states: dict[int, RangeState]

    def send(self, member: int, word: Word) -> None: ...

    def owned(self) -> list[int]: ...

    def owned_state(self, number: int) -> RangeState | None: ...

    def commit(self, number: int, changes: list[Change], says: list[Say], now: float) -> None: ...

    def when_copied(self, number: int, say: Say) -> None: ...

    def copied_steps(self, number: int) -> int: ...


class Registry:
    def __init__(self, server: RangeServer) -> None:
        self._server = server
        self._waiting: dict[Holder, tuple[int, words.Listen]] = {}
        self._holders: dict[Name, set[Holder]] = {}
        self._inquiring: set[int] = set()
        self._found: dict[Name, Watching] = {}

    def enter(self) -> None:
        """An epoch begins."""
        self._waiting.clear()
        self._holders.clear()
        self._inquiring.clear()
        self._found.clear()

    def register(self, sender: int, word: words.Register, now: float) -> None:
        states = {number: self._server.owned_state(number) for number in word.ranges}
        if None in states.values():
            return
        name = (word.worker, word.number)
        new = [number for number, state in states.items() if state is not None and _is_new(state, name)]
        full = any(len(self._server.states[number].watches.known) >= REGISTRATIONS_MAX for number in new)
        stands = words.Stands(word.epoch, word.number, word.ranges, full)
        say = when_all(1 if full else len(states), lambda: self._server.send(sender, stands))
        if full:
            say()
            return
        change = Change(watch=(name, word.made), done=(*name, (0, 0), None), floor=(word.worker, word.floor))
        for number in states:
            if number in new:
                self._server.commit(number, [change], [say], now)
            else:
                self._server.when_copied(number, say)

    def renew(self, sender: int, word: words.Renew, now: float) -> None:
        name, holder = word.registration, (word.worker, word.number)
        change = Change(
            done=(*holder, name, None),
            floor=(word.worker, word.floor),
            rewatch=None if word.ends else (name, word.lease_us),
            unwatch=name if word.ends else None,
        )
        owned = {number: self._server.states[number] for number in self._server.owned()}
        fresh = {number: one for number, one in owned.items() if not (one.over(*holder) or one.result(*holder))}
        new = [number for number, state in fresh.items() if _lives(state, name, now)]
        before = [number for number, state in owned.items() if state.result(*holder)]
        renewed = words.Renewed(word.epoch, word.number, bool(new or before))
        say = when_all(len(new) + len(before), lambda: self._server.send(sender, renewed))
        for number in new:
            self._server.commit(number, [change], [say], now)
        for number in before:
            self._server.when_copied(number, say)

    # Listeners.

    def listen(self, sender: int, word: words.Listen, now: float) -> None:
        name, holder = word.registration, (word.worker, word.number)
        for number, seen in word.seen:
            state = self._server.owned_state(number)
            watch = None if state is None else state.watches.known.get(name)
            if watch is not None and watch.seen < seen:
                self._server.commit(number, [Change(hears=(name, seen))], [], now)
        self._waiting[holder] = (sender, word)
        self._holders.setdefault(name, set()).add(holder)
        while len(self._waiting) > LISTENERS_MAX:
            self.forget(next(iter(self._waiting)))
        self._try(holder, now)

    def forget(self, holder: Holder) -> None:
        found = self._waiting.pop(holder, None)
        if found is not None:
            name = found[1].registration
            self._holders[name].discard(holder)
            if not self._holders[name]:
                del self._holders[name]

    def tell(self, names: Iterable[Name], now: float) -> None:
        """There is news of these registrations."""
        for name in names:
            for holder in sorted(self._holders.get(name, ())):
                self._try(holder, now)

    def _try(self, holder: Holder, now: float) -> None:
        """Answer a listener, if there is something to say."""
        sender, word = self._waiting[holder]
        watched = self._told(word, now)
        if watched.events or watched.gap or watched.ended or word.probe:
            self.forget(holder)
            self._server.send(sender, words.Told(word.epoch, word.number, watched))

    def _told(self, word: words.Listen, now: float) -> Watched:
        name, server = word.registration, self._server
        at = [number for number in server.owned() if _lives(server.states[number], name, now)]
        if not at:
            return Watched(ended=True)
        first = word.number % len(at)  # not always the same range first
        events = list(
            first_of(
                event
                for number in (*at[first:], *at[:first])
                for event in server.states[number].watches.events(name, number, server.copied_steps(number))
            )
        )
        firsts: dict[int, int] = {}
        for (number, event), _ in events:
            firsts.setdefault(number, event)
        watches = {number: server.states[number].watches.known[name] for number in at}
        missed = sum(watches[number].missed(event) for number, event in firsts.items())
        gaps = [(number, watch.seen + 1) for number, watch in watches.items() if watch.gap]
        seen = sum(watch.count for watch in watches.values())
        left_us = server.states[at[0]].watches.left_us(name, now)
        return Watched(events, missed, bool(gaps), False, watches[at[0]].hand_back, seen, left_us, gaps)

    # Lost ranges.

    @property
    def inquiring(self) -> bool:
        """True if some members have not said which registrations stand at all ranges."""
        return bool(self._inquiring)

    def inquire(self) -> None:
        """Ask every member, because a range of this server is lost."""
        assert self._server.epoch is not None
        self._inquiring.update(self._server.epoch.members)
        self.inquire_again()

    def inquire_again(self) -> None:
        assert self._server.epoch is not None
        for member in sorted(self._inquiring):
            self._server.send(member, words.Inquire(self._server.epoch.number))

    def inquired(self, sender: int, now: float) -> None:
        epoch = self._server.epoch
        assert epoch is not None
        valid = [state for state in self._server.states.values() if state.epoch >= max(epoch.opened, 1)]
        wide = {name: made for state in valid for name, made in state.watches.wide(now)}
        self._server.send(sender, words.Registered(epoch.number, sorted(wide.items(), key=lambda one: one[0])))

    def registered(self, sender: int, word: words.Registered) -> dict[Name, Watching] | None:
        """When all have answered: the registrations that stand at all ranges."""
        if sender not in self._inquiring:
            return None
        self._inquiring.discard(sender)
        self._found.update(word.watches)
        return None if self._inquiring else self._found


def _is_new(state: RangeState, name: Name) -> bool:
    return not state.over(*name) and state.result(*name) is None and name not in state.watches.known


def _lives(state: RangeState, name: Name, now: float) -> bool:
    watch = state.watches.known.get(name)
    return watch is not None and (watch.until == 0 or watch.until > now)


def when_all(count: int, say: Say) -> Say:
    """A word that is said when it was called so many times; at once if there is nothing to wait for."""
    left = [count]

    def one_more() -> None:
        left[0] -= 1
        if left[0] == 0:
            say()

    if not count:
        say()
    return one_more
