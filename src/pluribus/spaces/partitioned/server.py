"""A member as a server: the ranges that it owns, and the copies that it keeps.

*One owner a range and epoch.* The owner executes requests in steps. With ``copies`` above 1 every step goes to the
others that keep the range, and its answers are sent when they all have it.

When an epoch begins, ranges move to their new owners (``moving``) before anybody serves: by then tuples, tuples set
aside, and interests in their order have moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..roster import Epoch
from ..values import Item
from . import words
from .moving import Moving
from .pieces import ENTRY_BYTES, PIECE_BYTES_MAX
from .ranges import RESULTS_MAX, RangeState, placement
from .registry import Registry, Say, when_all
from .words import RANGES, Change, Name, Word

REPEAT_S = 0.3
TALLY_BYTES_MAX = 64 << 20
"""Bytes of tuples that one member sends when all are asked for."""


class Server:
    """``send`` sends a word to a member."""

    def __init__(self, me: int, copies: int, send: Callable[[int, Word], None]) -> None:
        self.me = me
        self.copies = copies
        self.send = send
        self.states: dict[int, RangeState] = {}
        self.epoch: Epoch | None = None
        self.placed: list[list[int]] = [[] for _ in range(RANGES)]
        """By range: the owner, then the members that keep copies."""
        self._owned: list[int] = []
        self._answers: dict[tuple[int, int], Say] = {}
        """By request: the words to its worker that are sent when its tuple is kept."""
        self.served = 0
        """How many requests were served; for statistics."""
        self._pending: dict[int, list[tuple[int, list[Change], list[Say]]]] = {}
        self._acks: dict[tuple[int, int], int] = {}
        self._nothing: dict[tuple[int, int], int] = {}
        """By request: the last question of it that was answered with nothing in this epoch."""
        self.registry = Registry(self)
        self.moving = Moving(self)

    @property
    def opened(self) -> bool:
        return self.epoch is not None and self.epoch.opened == self.epoch.number

    def owned(self) -> list[int]:
        return self._owned

    # Epochs.

    def enter(self, epoch: Epoch, now: float) -> None:
        self.epoch = epoch
        self.placed = placement(epoch.holders, self.copies)
        self._owned = [number for number, placed in enumerate(self.placed) if placed and placed[0] == self.me]
        self._forget()
        self.moving.tell()

    def was_opened(self) -> None:
        """The epoch was opened, and the next one has begun before this member saw that: others may have served in it,
        and have had steps copied here."""
        assert self.epoch is not None
        for number, state in self.states.items():
            if self.me in self.placed[number]:
                state.epoch = self.epoch.number

    def give_up(self) -> None:
        """All that is here is out of date."""
        self.epoch = None
        self.states.clear()
        self._owned = []
        self._forget()

    def _forget(self) -> None:
        """Forget what was under way."""
        self._answers.clear()
        self._pending.clear()
        self._acks.clear()
        self._nothing.clear()
        self.moving.enter()
        self.registry.enter()

    def open(self, epoch: Epoch, now: float) -> None:
        """Serve. Ranges of other members are given up, and interests of workers that are gone end."""
        self.epoch = epoch
        self.moving.open()
        for number in list(self.states):
            if self.me not in self.placed[number]:
                del self.states[number]
            else:
                self.states[number].epoch = epoch.number
        workers = {entry.worker for entry in epoch.entries}
        for number in self.owned():
            state = self.states[number]
            for member in self.placed[number][1:]:
                self._acks[number, member] = state.steps
            gone = {holder for holder in (*state.waiting, *state.aside.values()) if holder[0] not in workers}
            for holder in sorted(gone):
                self._leave(number, holder, [], now)

    def tick(self, now: float, again: bool) -> None:
        """``again``: repeat words that were not answered."""
        if self.epoch is None:
            return
        if not self.opened:
            if again:
                self.moving.repeat(now)
            return
        for number in self.owned():
            state = self.states[number]
            for name in state.expired(now):
                self.commit(number, [Change(remove=name)], [], now)
            for name in state.watches.expired(now):
                self.commit(number, [Change(unwatch=name)], [], now)
            if again:
                for name, (worker, request) in state.aside.items():
                    self._offer(number, name, state.tuples[name][0], worker, request)
                for owed in list(state.owed.values()):
                    self.when_copied(number, self._paying(number, owed))
        if again:
            self.moving.tell_counts(now)
            for number, pending in self._pending.items():
                self._copy(number, pending)

    @property
    def next_end(self) -> float:
        if not self.opened:
            return float("inf")
        owned = [self.states[number] for number in self.owned()]  # of a copy the owner says which leases have ended
        ends = [state.ends[0][0] for state in owned if state.ends]
        return min([*ends, *[state.watches.next_end for state in owned]], default=float("inf"))

    # Steps.

    def commit(self, number: int, changes: list[Change], says: list[Say], now: float) -> None:
        """Do a step of a range; its words are sent when all copies have the step."""
        state = self.states[number]
        state.step(changes, now)
        if state.watches.fresh:
            names = sorted(state.watches.fresh)
            state.watches.fresh.clear()
            says = [*says, lambda: self.registry.tell(names, now)]
        if len(self.placed[number]) == 1:
            for say in says:
                say()
            return
        pending = self._pending.setdefault(number, [])
        pending.append((state.steps, changes, says))
        self._copy(number, pending[-1:])

    def _copy(self, number: int, steps: Sequence[tuple[int, list[Change], list[Say]]]) -> None:
        assert self.epoch is not None
        for member in self.placed[number][1:]:
            changes: list[list[Change]] = []
            size = first = 0
            for step, some, _ in steps:  # of many, the first
                if step > self._acks.get((number, member), 0):
                    size += sum(map(_size, some))
                    if changes and size > PIECE_BYTES_MAX:
                        break
                    first = first or step
                    changes.append(some)
            if changes:
                self.send(member, words.Copy(self.epoch.number, number, first, changes))

    def copy(self, sender: int, word: words.Copy, now: float) -> None:
        assert self.epoch is not None
        state = self.states.get(word.range)
        if state is None or sender != self.placed[word.range][0]:
            return
        for number, changes in enumerate(word.changes, word.first):
            if number == state.steps + 1:
                state.step(changes, now)
        state.watches.fresh.clear()  # the owner tells
        self.send(sender, words.Copied(self.epoch.number, word.range, state.steps))

    def copied(self, sender: int, word: words.Copied) -> None:
        key = (word.range, sender)
        self._acks[key] = max(word.steps, self._acks.get(key, 0))
        others = self.placed[word.range][1:]
        everywhere = min((self._acks.get((word.range, member), 0) for member in others), default=0)
        pending = self._pending.get(word.range, [])
        while pending and pending[0][0] <= everywhere:
            for say in pending.pop(0)[2]:
                say()
        if not pending:
            self._pending.pop(word.range, None)

    def copied_steps(self, number: int) -> int:
        """How many steps of a range are in all copies."""
        pending = self._pending.get(number)
        return pending[0][0] - 1 if pending else self.states[number].steps

    def when_copied(self, number: int, say: Say) -> None:
        """Send a word when every step of a range so far is in all copies."""
        pending = self._pending.get(number)
        if pending:
            pending[-1][2].append(say)
        else:
            say()

    # Requests.

    def put(self, sender: int, word: words.Put, now: float) -> None:
        state = self.owned_state(word.range)
        if state is None:
            return
        assert self.epoch is not None
        self.served += 1
        name = (word.worker, word.number)
        kept = words.Kept(self.epoch.number, word.number)

        paid = words.Paid(self.epoch.number, word.owed_by, *name) if word.owed_by >= 0 else None

        def say() -> None:
            self.send(sender, kept if paid is None else paid)

        if state.over(word.worker, word.number) or state.result(word.worker, word.number) is not None:
            self.when_copied(word.range, say)
            return
        if word.first < state.born:
            self.send(sender, words.Kept(self.epoch.number, word.number, True) if paid is None else paid)
            return
        changes = [
            Change(
                add=(name, word.item, word.lease_us),
                done=(word.worker, word.number, (0, 0), None),
                floor=(word.worker, word.floor),
            )
        ]
        offers = self._offers(word.range, state, [(name, word.item)], changes)
        self.commit(word.range, changes, [say, *offers], now)

    def _offers(
        self,
        number: int,
        state: RangeState,
        items: Iterable[tuple[Name, Item]],
        changes: list[Change],
        but: tuple[int, int] = (0, 0),
    ) -> list[Say]:
        """Offer free items to interests. The first take that waits for an item has it set aside."""
        says: list[Say] = []
        busy = {*state.aside.values(), but}
        for name, item in items:
            for interest in state.interested(item):
                holder = (interest.worker, interest.number)
                if holder in busy:
                    continue
                says.append(self._saying(number, name, item, *holder))
                if interest.takes:
                    changes.append(Change(set_aside=(name, *holder)))
                    busy.add(holder)
                    break
        return says

    def _saying(self, number: int, name: Name, item: Item, worker: int, request: int) -> Say:
        return lambda: self._offer(number, name, item, worker, request)

    def _offer(self, number: int, name: Name, item: Item, worker: int, request: int) -> None:
        assert self.epoch is not None
        for entry in self.epoch.entries:
            if entry.worker == worker:
                self.send(entry.member, words.Offer(self.epoch.number, request, number, name, item))

    def registering(self, sender: int, word: words.Register | words.Renew | words.Listen, now: float) -> None:
        if not self.opened:
            return
        self.served += 1
        match word:
            case words.Register():
                self.registry.register(sender, word, now)
            case words.Renew():
                self.registry.renew(sender, word, now)
            case words.Listen():
                self.registry.listen(sender, word, now)

    def seek(self, sender: int, word: words.Seek, now: float) -> None:
        assert self.epoch is not None
        states = {number: self.owned_state(number) for number in word.ranges}
        if None in states.values():
            return
        self.served += 1
        epoch, holder = self.epoch.number, (word.worker, word.number)

        def answer(name: Name = (0, 0), item: Item | None = None, left_us: int = 0) -> Say:
            return lambda: self.send(sender, words.Sought(epoch, word.number, word.attempt, name, item, left_us))

        for number, state in states.items():
            assert state is not None
            before = state.result(*holder)
            if holder in state.owed:
                self._answers[holder] = answer(*before) if before is not None else answer()
                return
            # A range may also have kept the tuple that a replacing take has written: that is no result of its taking.
            if (before is not None and before[1] is not None) or state.over(*holder):
                self.when_copied(number, answer(*before) if before is not None else answer())
                return
        if self._repeated(word):
            say = when_all(len(states), answer())
            for number in states:
                self.when_copied(number, say)
            return
        if word.recall:
            self._found_nothing(word)
            answer()()
            return
        for number, state in states.items():
            assert state is not None
            name = next((one for one, who in state.aside.items() if who == holder), None)
            name = name if name is not None and word.takes else state.find(word.template, not word.takes)
            if name is not None:
                say = answer(name, state.tuples[name][0], state.left_us(name, now))
                self._found(number, state, name, word, say, now)
                return
        self._found_nothing(word)
        if word.probe:
            answer()()
        else:
            self._await(states, word, answer(), now)

    def _repeated(self, word: words.Seek | words.Claim) -> bool:
        """True if a question comes again that was answered with nothing. Its worker may have gone on, and would never
        learn of a tuple that it was given now."""
        return word.attempt <= self._nothing.get((word.worker, word.number), 0)

    def _found_nothing(self, word: words.Seek | words.Claim) -> None:
        holder = (word.worker, word.number)
        self._nothing.pop(holder, None)
        self._nothing[holder] = word.attempt
        if len(self._nothing) > RESULTS_MAX:
            del self._nothing[next(iter(self._nothing))]

    def _found(
        self, number: int, state: RangeState, name: Name, word: words.Seek | words.Claim, say: Say, now: float
    ) -> None:
        if isinstance(word, words.Seek) and not word.takes:
            self.when_copied(number, say)
            return
        self._take(number, state, name, word, say, now)

    def _take(
        self, number: int, state: RangeState, name: Name, word: words.Seek | words.Claim, say: Say, now: float
    ) -> None:
        """Remove a tuple for a request, and write the tuple that replaces it: in the same step if that belongs into
        this range; else its owner is asked until it has the tuple, and the request is answered then."""
        holder = (word.worker, word.number)
        done = (*holder, name, state.tuples[name][0])
        changes = [Change(remove=name, leave=holder, done=done, floor=(word.worker, word.floor))]
        carried = word.carried
        if carried is None:
            self.commit(number, changes, [say], now)
        elif carried.range == number:
            changes.append(Change(add=(holder, carried.item, carried.lease_us)))
            offers = self._offers(number, state, [(holder, carried.item)], changes, holder)
            self.commit(number, changes, [say, *offers], now)
        else:
            owed = words.Owed(*holder, carried)
            self._answers[holder] = say
            self.commit(number, [*changes, Change(owe=owed)], [self._paying(number, owed)], now)

    def _paying(self, number: int, owed: words.Owed) -> Say:
        return lambda: self._pay(number, owed)

    def _pay(self, number: int, owed: words.Owed) -> None:
        assert self.epoch is not None
        one = owed.carried
        at = self.placed[one.range]
        if at:
            put = words.Put(
                *(self.epoch.number, owed.worker, owed.number, 0, one.range, one.item, one.lease_us, one.first),
                owed_by=number,
            )
            self.send(at[0], put)

    def paid(self, word: words.Paid, now: float) -> None:
        state = self.owned_state(word.range)
        holder = (word.worker, word.number)
        if state is not None and holder in state.owed:
            answer = self._answers.pop(holder, None)
            self.commit(word.range, [Change(paid=holder)], [] if answer is None else [answer], now)

    def relet(self, sender: int, word: words.Relet, now: float) -> None:
        state = self.owned_state(word.range)
        if state is None or state.over(word.worker, word.number):
            return
        assert self.epoch is not None
        self.served += 1
        epoch = self.epoch.number
        before = state.result(word.worker, word.number)
        if before is not None:
            done = before[0] == word.name
            self.when_copied(word.range, lambda: self.send(sender, words.Let(epoch, word.number, done)))
            return
        until = state.tuples[word.name][1] if word.name in state.tuples else -1.0
        done = word.name not in state.aside and (until == 0 or until > now)
        changes = [
            Change(
                done=(word.worker, word.number, word.name if done else (0, 0), None),
                floor=(word.worker, word.floor),
                remove=word.name if done and word.ends else None,
                relet=(word.name, word.lease_us) if done and not word.ends else None,
            )
        ]
        self.commit(word.range, changes, [lambda: self.send(sender, words.Let(epoch, word.number, done))], now)

    def _await(self, states: dict[int, RangeState | None], word: words.Seek, say: Say, now: float) -> None:
        """Leave an interest at each of the ranges; answer when all copies have all of them."""
        one_more = when_all(len(states), say)
        interest = words.Interest(word.worker, word.number, word.template, word.takes)
        for number, state in states.items():
            if state is not None and (word.worker, word.number) in state.waiting:  # a word that came again
                self.when_copied(number, one_more)
            else:
                self.commit(number, [Change(wait=interest)], [one_more], now)

    def claim(self, sender: int, word: words.Claim, now: float) -> None:
        state = self.owned_state(word.range)
        if state is None:
            return
        assert self.epoch is not None
        self.served += 1
        epoch, holder = self.epoch.number, (word.worker, word.number)

        def answer(name: Name = (0, 0), item: Item | None = None, left_us: int = 0) -> Say:
            return lambda: self.send(sender, words.Sought(epoch, word.number, word.attempt, name, item, left_us))

        before = state.result(*holder)
        if holder in state.owed:
            self._answers[holder] = answer(*before) if before is not None else answer()
        elif before is not None and before[1] is not None:
            self.when_copied(word.range, answer(*before))
        elif state.aside.get(word.name) == holder and not self._repeated(word):
            say = answer(word.name, state.tuples[word.name][0], state.left_us(word.name, now))
            self._take(word.range, state, word.name, word, say, now)
        else:
            self._found_nothing(word)
            answer()()

    def withdraw(self, sender: int, word: words.Withdraw, now: float) -> None:
        assert self.epoch is not None
        if not self.opened:
            return
        holder = (word.worker, word.number)
        withdrawn = words.Withdrawn(self.epoch.number, word.number)
        where = [
            number
            for number in self.owned()
            if holder in self.states[number].waiting or holder in self.states[number].aside.values()
        ]
        self.registry.forget(holder)
        one_more = when_all(len(where), lambda: self.send(sender, withdrawn))
        for number in where:
            self._leave(number, holder, [one_more], now)

    def _leave(self, number: int, holder: tuple[int, int], says: list[Say], now: float) -> None:
        """An interest ends; a tuple that was set aside for it goes to the next."""
        state = self.states[number]
        free = [(name, state.tuples[name][0]) for name, who in state.aside.items() if who == holder]
        changes = [Change(leave=holder)]
        offers = self._offers(number, state, free, changes, holder)
        self.commit(number, changes, [*says, *offers], now)

    def tally(self, sender: int, word: words.Tally) -> None:
        assert self.epoch is not None
        if self.opened:
            states = [self.states[number] for number in self.owned()]
            count = sum(state.count(word.template) for state in states)
            items = _first((item for state in states for item in state.matches(word.template)), word.most)
            self.send(sender, words.Tallied(self.epoch.number, word.number, count, items))

    def owned_state(self, number: int) -> RangeState | None:
        if not self.opened or self.placed[number][:1] != [self.me]:
            return None
        return self.states.get(number)

    def validate(self) -> None:
        for state in self.states.values():
            state.validate()


def _size(change: Change) -> int:
    """The bytes of a change, about."""
    size = ENTRY_BYTES if change.add is None else ENTRY_BYTES + change.add[1].size
    if change.done is not None and change.done[3] is not None:
        size += change.done[3].size
    return size if change.owe is None else size + change.owe.carried.item.size


def _first(items: Iterable[Item], most: int) -> list[Item]:
    """As many items as fit into one word."""
    found: list[Item] = []
    size = 0
    for item in items if most else ():
        size += item.size
        if len(found) == most or size > TALLY_BYTES_MAX:
            break
        found.append(item)
    return found
