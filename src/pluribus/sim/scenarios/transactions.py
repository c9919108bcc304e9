"""Transactions under faults: tokens move between two queues, one or two at a time, each move with a receipt in a third.

A token is a message with its number and a count of its moves; each move writes the count plus one. Some transactions
are committed at once, some prepared and decided later by somebody else, while their consumers die, keepers crash, disks
tear and forget rows, and clocks differ.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import msgspec

from ...core.errors import Violation
from ...group.host import words as host
from ...group.host.machine import Machine
from ...queues import words
from ...queues.batch import pack
from ...queues.machine import Queue
from ...queues.words import AGAIN, DONE, Attach, Configure, Settings
from ...runtime.bus import BEST_EFFORT
from ...transactions import words as listed
from ...transactions.machine import Transactions
from ..checkers.hosts import bounded, same_states, time_never_falls
from ..checkers.logs import agreement, one_leader
from ..checkers.queues import one_holder
from ..checkers.transactions import nothing_halved, one_after_another, seen_when_committed
from ..machinery.chaos import torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario, hosts, queues
from .keepers import CALM_S, TORMENT_S, found, settle

TOKENS = 24
MOVERS = 4
SIDES = ("left", "right")
NUMBERS = {"left": 1, "right": 2, "receipts": 3, "transactions": 4}

_encode = msgspec.msgpack.encode
_token = msgspec.msgpack.Decoder(tuple[int, int]).decode

Held = tuple[str, int, int, int, bytes]
"""Side, consumer, epoch, message, body."""


class Play(queues.Play):
    codes: ClassVar[dict[str, type[Machine]]] = {"queue": Queue, "transactions": Transactions}
    machines: ClassVar[tuple[tuple[str, str], ...]] = (
        ("left", "queue"),
        ("right", "queue"),
        ("receipts", "queue"),
        ("transactions", "transactions"),
    )

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self.undecided: dict[int, tuple[int, list[bytes], dict[int, list[bytes]], dict[int, list[bytes]]]] = {}
        """Prepared transactions: version, the tokens that they moved, and the commands of either decision."""
        self.moving = 0

    async def create(self) -> None:
        await hosts.Play.create(self)
        settings = words.encode(Configure(Settings(tries_max=1_000_000, backoff_us=10_000, backoff_us_max=10_000)))
        for name in (*SIDES, "receipts"):
            await self.ordered(name, settings)
        tokens = [_encode((number, 0)) for number in range(TOKENS)]
        for one in tokens:
            self.add(0, "token", (_token(one)[0], 0), b"")
        assert (await self.told("left", pack(7, 1, 0, 0, tokens))).status in (DONE, AGAIN)

    def _renewed(self, owner: int) -> None:
        for life in self.lives.values():
            if life.up:
                for side in SIDES:
                    hosted = life.hosting.named(side)
                    if hosted is not None:
                        life.keeper.alive([(hosted.number, owner)])

    async def mover(self, name: int) -> None:
        random = self.world.random
        number = 1_000 * name
        while not self.calm:
            number += 1
            epochs = {}
            for side in SIDES:
                epochs[side] = (await self.told(side, Attach(number, number, queues.LEASE_US))).number
                await self.told(
                    side, words.Settle(number, epochs[side], serial=1, things_max=1, bytes_max=10_000, want=-1)
                )
            until = self.world.now + 2 + random.random() * 6
            while self.world.now < until and not self.calm:
                self._renewed(number)
                held: list[Held] = []
                for side in SIDES:
                    for thing, _, body in (await self._told(side, number, epochs[side]))[:1]:
                        held.append((side, number, epochs[side], thing, body))
                if held:
                    chosen = held if random.random() < 0.5 else [random.choice(held)]
                    await self.transact(chosen)
                await asyncio.sleep(0.02 + random.random() * 0.1)
            if random.random() < 0.5:  # else it dies without a word
                for side in SIDES:
                    await self.told(side, words.Detach(number))

    async def transact(self, held: list[Held]) -> None:
        """Move every token that is held here to the other side, with one receipt for all of them."""
        random = self.world.random
        self._transactions += 1
        id = 100_000 + self._transactions
        session = host.ONCE | id
        bodies = [body for *_, body in held]
        sends: dict[int, list[bytes]] = {}
        for at, (side, _, _, _, body) in enumerate(held):
            token, moved = _token(body)
            other = NUMBERS[SIDES[1 - SIDES.index(side)]]
            sends.setdefault(other, []).append(pack(session, 1 + at, 0, 0, [_encode((token, moved + 1))]))
        receipt = _encode((id, [_token(body) for body in bodies]))
        sends[NUMBERS["receipts"]] = [pack(session, 10, 0, 0, [receipt])]
        if random.random() < 0.3:
            await self.prepare(id, held, sends)
            return
        parts: dict[int, list[bytes]] = {}
        for side, consumer, epoch, thing, _ in held:
            parts.setdefault(NUMBERS[side], []).append(words.encode(words.Settle(consumer, epoch, [(thing, 1)])))
        for number, commands in sends.items():
            parts.setdefault(number, []).extend(commands)
        done = await self.together(id, parts, listed.Commit(id))
        self.add(0, "committed" if done else "refused", (id, 0), receipt)

    async def prepare(self, id: int, held: list[Held], sends: dict[int, list[bytes]]) -> None:
        if (await self.ordered("transactions", listed.encode(listed.Join(id, 20_000_000)))).status == listed.ENDED:
            return
        keeps: dict[int, list[bytes]] = {}
        for side, consumer, epoch, thing, _ in held:
            keep = words.Keep(id, consumer, epoch, [(thing, 1)])
            keeps.setdefault(NUMBERS[side], []).append(words.encode(keep))
        commit = {number: [words.encode(words.Resolve(id, True))] for number in keeps}
        for number, commands in sends.items():
            commit.setdefault(number, []).extend(commands)
        abort = {number: [words.encode(words.Resolve(id, False))] for number in keeps}
        if await self.together(id, keeps, listed.Prepare(id, 0, [], [])):
            self.undecided[id] = (1, sends[NUMBERS["receipts"]], commit, abort)

    async def together(self, id: int, parts: dict[int, list[bytes]], end: listed.Command) -> bool:
        """Do all commands in one transaction; returns True if it was committed."""
        self._settlements += 1
        every = [*parts.items(), (NUMBERS["transactions"], [listed.encode(end)])]
        together = host.Together(40_000, self._settlements, 0, every)
        self.moving += 1
        try:
            outcome = await self.ordered("", host.encode(together))
        finally:
            self.moving -= 1
        return outcome.status in (host.DONE, host.AGAIN)

    async def coordinator(self) -> None:
        """Decide about prepared transactions, sooner or later."""
        random = self.world.random
        while not self.calm or self.undecided or self.moving:
            await asyncio.sleep(random.random() * 0.5)
            if not self.undecided:
                continue
            id = random.choice(sorted(self.undecided))
            version, receipts, commit, abort = self.undecided.pop(id)
            commits = random.random() < 0.6
            end = listed.Commit(id, version) if commits else listed.Abort(id, True)
            done = await self.together(id, commit if commits else abort, end)
            if not done:
                raise Violation(f"transaction {id} was prepared, and could not be decided: commit={commits}")
            self.add(0, "committed" if commits else "refused", (id, 0), queues.body_of(receipts[0]))

    def _left(self) -> bool:
        return False


async def play(world: World, history: History) -> None:
    playing = Play(world, history)
    for number in range(len(world.hosts)):
        await playing.begin(number)
    await found(playing)
    await playing.create()
    acting = [playing.upgrade(), playing.operator(), playing.coordinator()]
    acting += [playing.mover(number) for number in range(1, MOVERS + 1)]
    tasks = [asyncio.create_task(one) for one in acting]
    if playing.churns:
        await playing.churn()
    await torment(world, 0.0 if playing.churns else TORMENT_S, playing.begin, 0.3, playing.faults())
    if playing.late_with_code >= 0:
        playing.upgraded = True
        number = playing.late_with_code
        if playing.lives[number].keeper.seat.halted:
            world.crash(number)
            await playing.begin(number, await world.restart(number))
    playing.calm = True
    _, late = await asyncio.wait(tasks, timeout=3 * CALM_S)
    if late:
        raise Violation(f"{len(late)} clients still wait {3 * CALM_S:g} s after the last fault")
    for task in tasks:
        task.result()
    await settle(playing)
    await asyncio.sleep(5)  # what is dead is freed, a little at a time
    await settle(playing)
    for number, life in playing.lives.items():
        life.keeper.validate()
        life.hosting.validate()
        names, _ = life.hosting.freeze(())
        state = [(name, life.hosting.whole_part(name)) for name in names]
        life.hosting.thaw(False)
        playing.add(number, "final", (0, 0), _encode((state, ([], []), {})))
        playing.add(number, "stored", hosts.stored(life), b"")
        playing.add(number, "differed", (life.keeper.differed, 0), b"")
    for number, life in playing.lives.items():  # afterwards: it takes time, in which states change
        for name in (*SIDES, "receipts"):
            for body in await queues.bodies_left(life, name):
                playing.add(number, "receipt" if name == "receipts" else "left", (0, number), body)
    playing.done = True
    history.add(Happening(world.now, 0, "settled", members=tuple(playing.lives)))


TRANSACTIONS = Scenario(
    name="transactions",
    about="tokens move between queues in transactions, some prepared and decided later, while keepers fail",
    stack=BEST_EFFORT,
    play=play,
    checkers={
        "agreement": agreement,
        "one_leader": one_leader,
        "nothing_halved": nothing_halved,
        "one_after_another": one_after_another,
        "seen_when_committed": seen_when_committed,
        "one_holder": one_holder,
        "same_states": same_states,
        "time_never_falls": time_never_falls,
        "bounded": bounded,
    },
    faults=hosts.HOSTS.faults,
    members_min=3,
    members_max=hosts.HOSTS.members_max,
)
