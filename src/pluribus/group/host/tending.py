"""What a keeper does for the machines on its log as time passes: ticks, the end of leases, space, announcing its code.

Every keeper frees its own rows and announces its own code. Only the leader's clock counts: the leader submits ticks
when something falls due, ends leases of owners that were silent for too long, and has extents with little left written
forward. A new leader has heard of no owner yet, so it grants every owner a full lease.

Leases are renewed without commands: the keeper that holds the line of an owner tells the leader now and then that the
owner is there. The lease of a member of the bus ends when it leaves the view. A leader that was held up (stopped,
asleep) hears what was said meanwhile only afterwards, so it gives owners that time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, islice

from ...core.errors import PluribusError
from ...core.ports import Timer
from ..keepers import Keeper
from .forwarding import forwarding
from .host import HOST, Host
from .words import Announce, Expire, Tick, Word, encode

LOOK_S = 0.5
"""How often space, leases and code are looked at."""
EXPIRED_MAX = 1_024
"""Owners that one command ends."""
HOLLOW_ROWS = 128
"""Rows that are made hollow in one turn of the loop."""
HOLLOW_PAUSE_S = 0.01


class Tending:
    """``start`` and ``stop`` it with the keeper. It submits commands like any caller; failed ones are tried again."""

    def __init__(self, host: Host, keeper: Keeper) -> None:
        self._host = host
        self._keeper = keeper
        self._clock = keeper.seat.clock
        self._timer: Timer | None = None
        self._tick_timer: Timer | None = None
        self._searching: Timer | None = None
        self._bringing = 0
        """Finds of searches that are being ordered."""
        self._ticking = self._announcing = self._expiring = False
        self._forwarding = 0
        """Writings forward that are being ordered."""
        self._heard: dict[tuple[int, int], float] = {}
        """When each owner of a lease was heard of, by this leader."""
        self._looked_at = self._clock.now()
        self._dead: deque[range] = deque()
        """Stretches of rows that are being made hollow, what is left of them."""
        self._hollowed: set[int] = set()
        """Ends of stretches that were made hollow in this life."""
        self._seen = self._log_seen()
        """Of which log these are."""
        self._missed = False
        """Whether a row of the first of them could not be read now."""
        self._poor: deque[range] = deque()
        """Extents that are to be written forward, each once a round; a round begins with a look. So one of which
        nothing can be had, because a row is damaged, does not hold up the others."""
        self._stopped = False
        self.also: Callable[[], None] | None = None
        """Called while this keeper leads, after commands and now and then: for other code that submits commands."""
        self.forwarded_bytes = 0
        self.hollow_rows = 0
        keeper.on_alive = self._alive

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        self._stopped = True
        for timer in (self._timer, self._tick_timer, self._searching):
            if timer is not None:
                timer.cancel()

    def applied(self) -> None:
        """Commands were applied: something may be due earlier than before."""
        if self._keeper.leads:
            if not self._ticking:
                self._tick()
            self._search()

    # What machines do outside of commands.

    def _search(self) -> None:
        """Search on; while found commands are under way, wait until they are applied."""
        if self.also is not None:
            self.also()
        if self._searching is not None or self._bringing:
            return
        for hosted in self._host.machines.values():  # after every row: no generator is made
            if hosted.machine.busy:
                self._searching = self._clock.call_later(0.0, self._chores)
                return

    def _chores(self) -> None:
        """One slice of work for each machine that has some; then other tasks have their turn."""
        self._searching = None
        if self._stopped or not self._keeper.leads:
            return
        for number, hosted in list(self._host.machines.items()):
            found = hosted.machine.chores() if hosted.machine.busy else []
            if found and not self._bring(number, found):
                return  # too much is under way: after the next row
        self._search()

    def _bring(self, number: int, found: Sequence[bytes]) -> bool:
        def done(index: int, error: PluribusError | None) -> None:
            self._bringing -= 1
            if error is None:
                self._host.take_outcomes(index, len(found))
                self._search()
            else:  # this keeper may lead again
                self._search_again(number)

        self._bringing += 1
        try:
            self._keeper.submit_many(found, done, number)
        except PluribusError:
            self._bringing -= 1
            self._search_again(number)
            return False
        return True

    def _search_again(self, number: int) -> None:
        hosted = self._host.machines.get(number)
        if hosted is not None:
            hosted.machine.search_again()

    # Time.

    def _tick(self) -> None:
        keeper = self._keeper
        if self._stopped or not keeper.leads or self._ticking:
            return
        due_us = self._host.next_due_us()
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None
        if due_us is None:
            return
        now_us = keeper.leader_time_us
        if due_us > now_us:
            wait_s = min(max((due_us - now_us) / 1e6, 0.001), LOOK_S)  # the time may run faster than this clock
            self._tick_timer = self._clock.call_later(wait_s, self._tick)
            return
        self._ticking = True
        self._submit(Tick(self._host.due(now_us)), "_ticking", self._tick)

    # Everything else.

    def _look(self) -> None:
        if self._stopped:
            return
        self._timer = self._clock.call_later(LOOK_S, self._look)
        keeper = self._keeper
        self._allow_for_lateness()
        if not keeper.leads:
            self._heard.clear()
            self._poor.clear()
        if keeper.ledger.fresh or not keeper.ledger.may_vote or keeper.seat.halted:
            return
        self._free()
        if keeper.seat.leader and dict(self._host.announced(keeper.id)) != self._host.versions():
            self._announce()
        if keeper.leads:
            self._tick()
            self._search()
            self._expire()
            self._begin_forward()

    def _announce(self) -> None:
        if not self._announcing and self._keeper.seat.applied_row:
            self._announcing = True
            self._submit(Announce(self._keeper.id, self._host.versions()), "_announcing")

    def _submit(self, word: Word, flag: str, then: object = None) -> None:
        def done(index: int, error: PluribusError | None) -> None:
            setattr(self, flag, False)
            if error is None:
                self._host.take_outcomes(index, 1)
                if callable(then):
                    then()

        try:
            self._keeper.submit_many([encode(word)], done, HOST)
        except PluribusError:
            setattr(self, flag, False)

    # Leases.

    def _alive(self, keeper: int, owners: list[tuple[int, int]]) -> None:
        now = self._clock.now()
        for owner in owners:
            if owner in self._heard:  # others hold nothing, or are looked at soon
                self._heard[owner] = now

    def gone(self, members: Collection[int]) -> None:
        """Members that left the view: what they hold is free now, and not when their leases end."""
        over = [owner for owner in self._heard if owner[1] in members]
        self._heard.update(dict.fromkeys(over, float("-inf")))
        if over and not self._stopped and self._keeper.leads:
            self._expire()

    def _allow_for_lateness(self) -> None:
        """While this process stood still nobody could be heard: that time is nobody's silence."""
        now = self._clock.now()
        late_s = now - self._looked_at - LOOK_S
        self._looked_at = now
        if late_s > LOOK_S:
            self._heard = {owner: min(at + late_s, now) for owner, at in self._heard.items()}

    def _expire(self) -> None:
        now = self._clock.now()
        held = {
            (number, owner): lease_us / 1e6
            for number, hosted in self._host.machines.items()
            for owner in hosted.machine.owners()
            if (lease_us := hosted.machine.lease_us(owner)) is not None
        }
        self._heard = {owner: self._heard.get(owner, now) for owner in held}
        gone = [owner for owner, lease_s in held.items() if now - self._heard[owner] > lease_s]
        if gone and not self._expiring:
            number = gone[0][0]
            self._expiring = True
            owners = [owner for machine, owner in gone if machine == number][:EXPIRED_MAX]
            self._submit(Expire(number, owners), "_expiring")

    # Space.

    def _free(self) -> None:
        """Make rows hollow of which nothing is needed, and forget those at the front of the log."""
        keeper, space = self._keeper, self._host.space
        keeper.keep_rows(space.first_row)
        if self._seen != self._log_seen():
            self._seen = self._log_seen()
            self._dead.clear()
            self._hollowed.clear()
        if not self._dead:
            found = space.dead_rows(keeper.ledger.start, keeper.ledger.snapshot.row)
            self._hollowed &= {rows.stop for rows in found}
            self._dead.extend(rows for rows in found if rows.stop not in self._hollowed)
            self._hollow()

    def _log_seen(self) -> tuple[int, int]:
        """It changes when this keeper takes over the state of another one, and when its store refuses a write: rows
        that were being made hollow are as they were then."""
        return self._keeper.seat.installs, self._keeper.ledger.failures

    def _hollow(self) -> None:
        """Some rows; the next ones when these are on disk, so that nobody waits long for the loop or for the disk."""
        if self._stopped or not self._dead or self._seen != self._log_seen():
            return
        if not self._keeper.ledger.hollowing:
            wanted = list(islice(chain.from_iterable(self._dead), HOLLOW_ROWS))
            done = self._keeper.hollow(wanted)
            self.hollow_rows += len(done)
            self._pass_over(wanted, done)
        if self._dead:
            self._clock.call_later(HOLLOW_PAUSE_S, self._hollow)

    def _pass_over(self, wanted: Sequence[int], done: Sequence[int]) -> None:
        """What is left is behind the last row that was done. A stretch with a row that was not has another turn."""
        stop = (done[-1] if done else wanted[-1]) + 1
        missed = {row for row in wanted if self._keeper.ledger.start <= row < stop} - set(done)
        while self._dead and self._dead[0].start < stop:
            rows = self._dead.popleft()
            self._missed = self._missed or any(row in rows for row in missed)
            if rows.stop > stop:
                self._dead.appendleft(range(stop, rows.stop))
                return
            if not self._missed:
                self._hollowed.add(rows.stop)
            self._missed = False

    def _begin_forward(self) -> None:
        if not self._poor and not self._host.space.bounded:
            self._poor.extend(self._host.space.poorest(self._keeper.ledger.snapshot.row))
        self._forward()

    def _forward(self) -> None:
        """Have the live rest of the deadest extent written once more, and when that is done the next one's, until the
        log is within its bound: however fast rows die, it stays there."""
        keeper = self._keeper
        if self._forwarding or self._stopped or not keeper.leads:
            return
        if self._host.space.bounded:
            self._poor.clear()
        if not self._poor:
            return
        if keeper.ledger.hollowing:
            self._clock.call_later(HOLLOW_PAUSE_S, self._forward)
            return
        scars = keeper.ledger.scars
        rows = [row for row in self._poor.popleft() if row not in scars and row >= keeper.ledger.start]
        for number, wanted in forwarding(self._host, rows, keeper.read_row):
            self._write_forward(number, wanted)
        if self._poor and not self._forwarding:
            self._clock.call_later(0.0, self._forward)

    def _write_forward(self, number: int, wanted: Sequence[bytes]) -> None:
        def done(index: int, error: PluribusError | None) -> None:
            self._forwarding -= 1
            if error is None:
                self._host.take_outcomes(index, len(wanted))
                self.forwarded_bytes += sum(map(len, wanted))
                if not self._forwarding:
                    self._clock.call_later(0.0, self._forward)

        self._forwarding += 1
        try:
            self._keeper.submit_many(wanted, done, number)
        except PluribusError:
            self._forwarding -= 1


def machines_of(host: Host, turns: Mapping[int, int]) -> list[dict[str, object]]:
    """For people: each machine, its version, what it was asked, and what the leader wrote for it."""
    return [
        {
            "machine": hosted.name,
            "kind": hosted.kind,
            "version": hosted.version,
            "commands": hosted.commands,
            "turn_bytes": turns.get(hosted.number, 0),
            **hosted.machine.gauges(),
        }
        for hosted in host.machines.values()
    ]
