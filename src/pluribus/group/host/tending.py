"""What a keeper does for the machines on its log as time goes by: ticks, the end of leases, freed space, its own code.

Every keeper frees its own rows, and announces its own code. The leader alone has a clock that counts: it submits ticks
when something falls due, says which owners of leases were silent for too long, and has rows with little left written
forward. A new leader has heard of nobody yet, so it grants every owner a full lease.

Leases are renewed without commands: whoever holds the line of an owner tells the leader now and then that it is there.
The lease of a member of the bus ends when it leaves the view.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

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


class Tending:
    """``start`` when the keeper is started, ``stop`` with it. It submits as anybody does: what fails is tried again."""

    def __init__(self, host: Host, keeper: Keeper) -> None:
        self._host = host
        self._keeper = keeper
        self._clock = keeper.seat.clock
        self._timer: Timer | None = None
        self._tick_timer: Timer | None = None
        self._searching: Timer | None = None
        self._bringing = 0
        """Finds of searches that are being ordered."""
        self._ticking = self._announcing = self._forwarding = self._expiring = False
        self._heard: dict[tuple[int, int], float] = {}
        """When each owner of a lease was heard of, by this leader."""
        self._led = False
        self._hollowed: set[int] = set()
        """First rows of stretches that were made hollow in this life."""
        self._stopped = False
        self.also: Callable[[], None] | None = None
        """Called where this keeper leads, after commands and now and then: what others bring to machines."""
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
        if self._keeper.leads and not self._ticking:
            self._tick()
        if self._keeper.leads:
            self._search()

    # What machines do outside of commands.

    def _search(self) -> None:
        """What was found is under way: the search goes on when that was applied."""
        if self.also is not None:
            self.also()
        idle = self._searching is None and not self._bringing
        if idle and any(one.machine.busy for one in self._host.machines.values()):
            self._searching = self._clock.call_later(0.0, self._chores)

    def _chores(self) -> None:
        """A slice for each machine that has something to do, then others have their turn."""
        self._searching = None
        if self._stopped or not self._keeper.leads:
            return
        for number, hosted in list(self._host.machines.items()):
            found = hosted.machine.chores() if hosted.machine.busy else []
            if found:
                self._bring(number, found)
        self._search()

    def _bring(self, number: int, found: Sequence[bytes]) -> None:
        def done(index: int, error: PluribusError | None) -> None:
            self._bringing -= 1
            if error is None:
                self._host.take_outcomes(index, len(found))
                self._search()

        self._bringing += 1
        try:
            self._keeper.submit_many(found, done, number)
        except PluribusError:  # the search is done again by whoever leads then
            self._bringing -= 1

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
        if keeper.ledger.fresh or not keeper.whole or keeper.seat.halted:
            return
        self._free()
        if keeper.seat.leader and dict(self._host.announced(keeper.id)) != self._host.versions():
            self._announce()
        if keeper.leads:
            self._tick()
            self._search()
            self._expire()
            self._forward()
        else:
            self._heard.clear()
            self._led = False

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

    def _expire(self) -> None:
        now = self._clock.now()
        held = {
            (number, owner): lease_us / 1e6
            for number, hosted in self._host.machines.items()
            for owner in hosted.machine.owners()
            if (lease_us := hosted.machine.lease_us(owner)) is not None
        }
        self._led = True
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
        before = keeper.ledger.snapshot.row
        for rows in space.dead_rows(keeper.ledger.start, before):
            if rows.start in self._hollowed:
                continue
            wanted = [row for row in rows if row >= keeper.ledger.start]
            done = keeper.hollow(wanted)
            self.hollow_rows += len(done)
            if len(done) < len(wanted):
                return  # the rest with the next look
            self._hollowed.add(rows.start)
        self._hollowed = {row for row in self._hollowed if row >= keeper.ledger.start}

    def _forward(self) -> None:
        """Have the live rest of the deadest extent written once more."""
        keeper = self._keeper
        rows = self._host.space.poorest(keeper.ledger.snapshot.row)
        if rows is None or self._forwarding:
            return
        for number, wanted in forwarding(self._host, rows, keeper.read_row):
            self._write_forward(number, wanted)

    def _write_forward(self, number: int, wanted: Sequence[bytes]) -> None:
        def done(index: int, error: PluribusError | None) -> None:
            self._forwarding = False
            if error is None:
                self._host.take_outcomes(index, len(wanted))
                self.forwarded_bytes += sum(map(len, wanted))

        self._forwarding = True
        try:
            self._keeper.submit_many(wanted, done, number)
        except PluribusError:
            self._forwarding = False


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
