"""Keepers: clients write and read registers on a durable log, while machines crash, disks go bad and the network parts.

Each host runs a keeper on its disk, without a bus: words travel as datagrams, so every fault of the network strikes
them. The first hosts are voters, the others learners; now and then an operator makes a learner a voter, or the reverse.

Disks are lost as a whole: the host comes back with an empty disk, as a new keeper, and the operator lets it vote in the
place of the old one. In some runs most voters are gone for good at the end, and the operator forces the remaining
keepers to go on; ``sim/checkers/forced.py`` has the promises for this case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from ...core.errors import PluribusError, Uncertain, Violation
from ...core.ports import Datagram
from ...group.keepers import Keeper, Settings
from ...group.keepers.rows import Voters
from ...group.keepers.voting import most_recent, named, standing_of
from ...group.keepers.words import WHOLE, meta_of
from ...group.once import DONE, OnceMachine, identified, outcome_of
from ...runtime.bus import BEST_EFFORT, Bus
from ..checkers.forced import forced_too
from ..checkers.logs import Final, Ok, agreement, finished, kept, linearizable, once, one_leader
from ..machinery.chaos import (
    STRIKES,
    Fault,
    Restarted,
    bad_links,
    crash,
    drift,
    good_links,
    heal,
    partition,
    pause,
    restart,
    torment,
)
from ..machinery.disk import SimStore
from ..machinery.history import Happening, History
from ..machinery.network import Link
from ..machinery.world import World
from . import Scenario

NAME = "kept"
PORT = 7
KEYS = ("x", "y", "z")
CLIENTS = 4
TORMENT_S = 20.0
CALM_S = 30.0
"""Seconds without faults within which every operation must be answered."""
ANSWER_S = 3.0
RESULTS_MAX = 512
JOURNALS = (2, 4, 5)
"""Of seven worlds, those in which a disk loses the end of the store's journal instead of the end of a log."""
SETTINGS = Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0, snapshot_bytes=3_000, words_bytes=200, slack_rows=6)
"""Short times and small messages, so that much happens in twenty seconds."""

_encode = msgspec.msgpack.encode
_write_of = msgspec.msgpack.Decoder(tuple[int, int, str, bytes]).decode


class Registers:
    """The state machine: values by key, and a list of all effects."""

    def __init__(self) -> None:
        self.effects: list[tuple[int, int, int, str, bytes]] = []
        self.values: dict[str, bytes] = {}

    def apply(self, index: int, command: bytes) -> bytes:
        session, sequence, key, value = _write_of(command)
        self.effects.append((session, sequence, index, key, value))
        self.values[key] = value
        return index.to_bytes(8, "big")

    def snapshot(self) -> bytes:
        return _encode(Final(self.effects))

    def restore(self, state: bytes) -> None:
        self.effects = msgspec.msgpack.decode(state, type=Final).effects if state else []
        self.values = {key: value for _, _, _, key, value in self.effects}


class Life:
    """One keeper from its start to its crash."""

    def __init__(self, play: Play, number: int) -> None:
        self.play = play
        self.number = number
        self.host = play.world.hosts[number]
        self.life = self.host.incarnations
        self.engine = self.host.port(PORT)
        self.machine = OnceMachine(Registers())
        self.results: dict[int, bytes] = {}
        self.keeper = Keeper(
            NAME, self.host.disk, self, self.host.clock(), self.host.random("/keeper"), SETTINGS, self._report
        )
        self.keeper.on_commit = self._commit
        self.keeper.on_snapshot = self.machine.snapshot
        self.keeper.on_restore = self._restore
        self.keeper.on_role = self._role
        if play.keeps_all:
            self.keeper.keep_from(0)

    @property
    def up(self) -> bool:
        return self.host.up and self.host.incarnations == self.life

    async def start(self) -> None:
        await self.engine.open(self._receive, lambda: None)
        self.play.addresses[self.keeper.id] = (self.host.name, PORT)
        self.keeper.start()

    def send(self, to: int, words: bytes) -> None:
        address = self.play.addresses.get(to)
        if address is not None:
            self.engine.send([words], address)

    def others(self) -> Sequence[int]:
        return [keeper for keeper in self.play.addresses if keeper != self.keeper.id]

    def _receive(self, datagrams: list[Datagram]) -> None:
        for datagram, _ in datagrams:
            self.keeper.receive(datagram)

    def _commit(self, first: int, commands: Sequence[bytes]) -> None:
        for index, command in enumerate(commands, first):
            self.play.add(self.number, "apply", (index, self.life), command)
            self.results[index] = self.machine.apply(index, command)
        if self.keeper.leads:
            self.play.add(self.number, "led", (self.keeper.ledger.epoch, self.keeper.id), b"")
        while len(self.results) > RESULTS_MAX:
            del self.results[next(iter(self.results))]

    def _restore(self, index: int, state: bytes) -> None:
        self.play.add(self.number, "restore", (index, self.life), b"")
        self.machine.restore(state)

    def _report(self, what: str) -> None:
        self.play.world.note("report", self.host.name, what.encode())

    def _role(self, role: str, epoch: int) -> None:
        self.play.world.note(role, self.host.name, str(epoch).encode())
        if role == "leader":
            self.play.add(self.number, "led", (epoch, self.keeper.id), b"")


class Play:
    """One seed."""

    def __init__(self, world: World, history: History) -> None:
        self.world = world
        self.history = history
        self.lives: dict[int, Life] = {}
        self.addresses: dict[int, tuple[str, int]] = {}
        self.keeps_all = world.random.random() < 0.3
        members = len(world.hosts)
        self.voters = 5 if members >= 6 and world.random.random() < 0.5 else 3
        for host in world.hosts:
            host.disk.latency_s = world.random.choice((0.005, 0.02, 0.05))
        self.calm = False
        self.churns = world.random.random() < 0.4
        self.ends_badly = world.random.random() < 0.55
        self.lost: dict[int, int] = {}
        """Keepers whose disk is lost, with their hosts; each is still to be replaced by another keeper."""
        self._struck: dict[int, tuple[int, float] | None] = {}
        """Hosts whose disk went bad: the life of the machine, and the time at which everything that put the disk right
        is synced; None while the disk is not right again."""
        self._reads = 0

    def add(self, member: int, what: str, number: tuple[int, int], body: bytes) -> None:
        self.history.add(Happening(self.world.now, member, what, NAME, number, body))

    async def begin(self, number: int, bus: Bus | None = None) -> None:
        life = self.lives[number] = Life(self, number)
        await life.start()

    async def ask(self, call: Callable[[Life, Callable[[int, PluribusError | None], None]], None]) -> tuple[Life, int]:
        """Ask any keeper that is up; ``Uncertain`` if it does not answer."""
        up = [life for life in self.lives.values() if life.up]
        if not up:
            raise Uncertain("nobody is up")
        life = self.world.random.choice(up)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(index: int, error: PluribusError | None) -> None:
            if not answer.done():
                if error is None:
                    answer.set_result(index)
                else:
                    answer.set_exception(error)

        def ask() -> None:
            try:
                call(life, done)
            except PluribusError as error:
                done(-1, error)

        life.host.gate(ask)
        try:
            return life, await asyncio.wait_for(answer, ANSWER_S)
        except TimeoutError:
            raise Uncertain("no answer") from None

    async def client(self, session: int) -> None:
        """Writes in batches and reads, one after another; an operation without an answer is asked for again."""
        random = self.world.random
        sequence = 0
        while not self.calm:
            await asyncio.sleep(random.random() * 0.05)
            if random.random() < 0.3:
                await self.read(session)
            else:
                count = random.choice((1, 1, 2, 4))
                await self.write(session, range(sequence + 1, sequence + count + 1))
                sequence += count

    async def write(self, session: int, sequences: range) -> None:
        random = self.world.random
        commands = {}
        for sequence in sequences:
            value = f"{session}/{sequence}".encode() * random.randrange(1, 8)
            body = _encode((session, sequence, random.choice(KEYS), value))
            commands[sequence] = identified(session, sequence, body)
            self.add(session, "invoke", (session, sequence), body)
        while commands:
            batch = list(commands.values())
            try:
                life, first = await self.ask(lambda life, done, batch=batch: life.keeper.submit_many(batch, done))  # type: ignore[misc]
            except PluribusError:
                await asyncio.sleep(random.random() * 0.2)
                continue
            for index, sequence in enumerate(list(commands), first):
                outcome = outcome_of(life.results[index])
                if outcome.status == DONE:
                    self.add(session, "ok", (session, sequence), _encode(Ok(int.from_bytes(outcome.result, "big"))))
                    del commands[sequence]
                else:
                    break

    async def read(self, session: int) -> None:
        """Read from the state of any keeper, after a barrier."""
        self._reads += 1
        number = (session, -self._reads)
        key = self.world.random.choice(KEYS)
        self.add(session, "invoke", number, key.encode())
        seen: list[Ok] = []

        def read(life: Life, done: Callable[[int, PluribusError | None], None]) -> None:
            def there(index: int, error: PluribusError | None) -> None:
                if error is None:
                    registers = life.machine.machine
                    assert isinstance(registers, Registers)
                    seen.append(Ok(index, key, registers.values.get(key, b"")))
                done(index, error)

            life.keeper.barrier(there)

        while True:
            try:
                await self.ask(read)
            except PluribusError:
                await asyncio.sleep(self.world.random.random() * 0.2)
                continue
            self.add(session, "ok", number, _encode(seen[-1]))
            return

    async def operator(self) -> None:
        """Make learners voters, and the reverse, so that there are three voters."""
        random = self.world.random
        while not self.calm or self.lost:
            await asyncio.sleep(0.5 + random.random() * (1 if self.lost else 4))
            keeper = random.choice(sorted(self.addresses))
            votes = keeper not in self._voters().keepers
            if (self.lost and random.random() < 0.5) or self.calm:
                await self.replace()
            elif votes or len(self._voters().keepers) > 3 or self.lost:
                await self.set_voter(keeper, votes)

    def _voters(self) -> Voters:
        ledgers = [life.keeper.ledger for life in self.lives.values()]
        return max((ledger.voters for ledger in ledgers), key=lambda voters: voters.version)

    async def set_voter(self, keeper: int, votes: bool) -> bool:
        try:
            await self.ask(lambda life, done: life.keeper.set_voter(keeper, votes, done))
        except PluribusError:
            return False
        return True

    async def replace(self) -> None:
        """Do what ``bus.keepers.replace`` does: add the new keeper when it has caught up, then remove the old one."""
        for old, number in list(self.lost.items()):
            life = self.lives[number]
            if life.up and await self.set_voter(life.keeper.id, True) and await self.set_voter(old, False):
                del self.lost[old]

    async def replacing(self) -> None:
        """An operator that only replaces lost keepers."""
        while not self.calm or self.lost:
            await asyncio.sleep(0.5 + self.world.random.random())
            await self.replace()

    async def end_badly(self) -> None:
        """Lose most voters for good, while clients write and one remaining keeper is a little behind. The operator
        forces the remaining keepers to go on, as ``bus.keepers.force`` does."""
        world, random = self.world, self.world.random
        self.calm = False
        sessions = range(CLIENTS + 10, 2 * CLIENTS + 10)
        tasks = [asyncio.create_task(self.client(session)) for session in sessions]
        voters = [number for number, life in self.lives.items() if life.keeper.id in self._voters().keepers]
        dead = set(random.sample(voters, len(voters) // 2 + 1))
        left = [number for number in self.lives if number not in dead]
        await asyncio.sleep(0.5 + random.random())
        behind = random.choice(left)
        world.partition([behind], [number for number in self.lives if number != behind])
        await asyncio.sleep(random.random() * 0.4)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for number in sorted(dead):
            world.crash(number)
            del self.lives[number]
        world.heal()
        while not self._force():  # noqa: ASYNC110 - roles change without telling
            await asyncio.sleep(0.2)
        self.calm = True

    def _force(self) -> bool:
        lives = {named(life.keeper.id): life for life in self.lives.values()}
        roll = [standing_of(life.keeper) for life in lives.values()]
        if any(one.leader or one.role == "candidate" for one in roll):
            return False
        best = most_recent(roll)
        epoch, cluster = max(one.epoch for one in roll) + 1, self.world.random.getrandbits(62) + 1
        self.history.add(Happening(self.world.now, 0, "forced", NAME, members=tuple(self.lives)))
        self.world.faults["forced"] += 1
        lives[best.keeper].keeper.force(cluster, epoch)
        for one in roll:
            if one.keeper != best.keeper:
                lives[one.keeper].keeper.adopt(best.cluster, cluster, epoch, best.end)
        return True

    # Faults of disks: one is bad at a time, because what most voters lost nobody can put back.

    def _may_strike(self) -> bool:
        if self.lost or len(self._voters().keepers) < 3:
            return False
        sound = [self._sound(number) for number in range(len(self.world.hosts))]
        return all(sound)

    def _sound(self, number: int) -> bool:
        """True if the disk of this host is right, and stays right if the machine crashes now: a crash undoes a repair
        that is not synced."""
        host = self.world.hosts[number]
        if host.disk.damage() or not _whole_on(host.disk):
            self._struck[number] = None
            return False
        if number not in self._struck:
            return True
        mended = self._struck[number]
        if mended is None or mended[0] != host.incarnations:
            mended = self._struck[number] = (host.incarnations, host.disk.idle_at)
        if self.world.now <= mended[1]:
            return False
        del self._struck[number]
        return True

    async def flip(self, world: World, restarted: Restarted) -> None:
        if self._may_strike():
            number = world.random.randrange(len(world.hosts))
            self._struck[number] = None
            world.flip_bit(number)

    async def lose_tail(self, world: World, restarted: Restarted) -> None:
        """Remove the end of a log while the machine is down; in some worlds the end of the store's journal, with all
        acknowledged rows in it."""
        if not self._may_strike():
            return
        number = world.random.randrange(len(world.hosts))
        host = world.hosts[number]
        self._struck[number] = None
        if world.seed % 7 not in JOURNALS:
            host.disk.lose_tail()
            return
        if host.up:
            world.crash(number)
        host.disk.lose_commits()

    async def shatter(self, world: World, restarted: Restarted) -> None:
        if self._may_strike():
            number = world.random.randrange(len(world.hosts))
            self._struck[number] = None
            world.hosts[number].disk.shatter()

    async def lose_disk(self, world: World, restarted: Restarted) -> None:
        """Lose a disk for good, and with it its keeper: the next keeper of this host is a new one."""
        if not self._may_strike():
            return
        life = world.random.choice([*self.lives.values()])
        if not life.keeper.ledger.fresh and life.keeper.seat.may_speak:
            if life.host.up:
                world.crash(life.number)
            life.host.lose_disk()
            del self.addresses[life.keeper.id]
            self.lost[life.keeper.id] = life.number

    async def fill(self, world: World, restarted: Restarted) -> None:
        world.random.choice(world.hosts).disk.full = True

    async def free(self, world: World, restarted: Restarted) -> None:
        for host in world.hosts:
            host.disk.full = False

    async def crash_all(self, world: World, restarted: Restarted) -> None:
        """Crash all keepers; most of them come back at once."""
        for number, host in enumerate(world.hosts):
            if host.up:
                world.crash(number)
        for number in range(len(world.hosts)):
            if world.random.random() < 0.7:
                await restarted(number, await world.restart(number))

    def _leader(self) -> int | None:
        leading = [life for life in self.lives.values() if life.up and life.keeper.leads]
        return max(leading, key=lambda life: life.keeper.ledger.epoch).number if leading else None

    async def isolate_leader(self, world: World, restarted: Restarted) -> None:
        """Cut off the leader, so that it writes rows that no other keeper has."""
        leader = self._leader()
        if leader is not None:
            world.partition([leader], [number for number in range(len(world.hosts)) if number != leader])

    async def pause_leader(self, world: World, restarted: Restarted) -> None:
        """Pause the leader, so that it believes that it still leads when it goes on."""
        leader = self._leader()
        if leader is not None:
            world.pause(leader, 0.5 + 2 * world.random.random())

    async def crash_leader(self, world: World, restarted: Restarted) -> None:
        leader = self._leader()
        if leader is not None:
            world.crash(leader)

    async def churn(self) -> None:
        """Let every leader crash soon, some before they have sent their new rows to any other keeper, with just enough
        voters up to elect another: a row that one keeper alone has must not be committed too early, nor lost after
        that."""
        world, random = self.world, self.world.random
        until = world.now + TORMENT_S
        world.set_link(Link(loss=0.3))
        while world.now < until:
            await asyncio.sleep(random.random() * (0.4 if random.random() < 0.2 else 0.05))
            leader = self._leader()
            if leader is None:
                continue
            for number in range(self.voters):
                if world.hosts[number].up and random.random() < (0.7 if number == leader else 0.2):
                    world.crash(number)
            down = [number for number in range(self.voters) if not world.hosts[number].up]
            while len(down) > self.voters - (self.voters // 2 + 1):
                number = down.pop(random.randrange(len(down)))
                await self.begin(number, await world.restart(number))

    def faults(self) -> list[Fault]:
        usual: list[Fault] = [crash, crash, restart, restart, restart, pause, drift, partition, heal, heal]
        disks: list[Fault] = [
            *[self.flip] * 6,
            *[self.lose_tail] * 6,
            *[self.shatter] * 6,
            *[self.lose_disk] * 6,
            self.fill,
            self.free,
            self.free,
        ]
        leaders: list[Fault] = [self.crash_all, self.crash_leader, self.pause_leader, self.isolate_leader]
        return [*usual, bad_links, good_links, *disks, *leaders]


def _whole_on(disk: SimStore) -> bool:
    """True if the keeper of this disk has recorded that its copy is whole."""
    meta = disk.get(f"{NAME}/meta/a")
    return meta is not None and meta_of(meta).health == WHOLE


async def play(world: World, history: History) -> None:
    playing = Play(world, history)
    for number in range(len(world.hosts)):
        await playing.begin(number)
    await found(playing)
    await playing.write(CLIENTS + 2, range(1, 2))
    await settle(playing)
    acting: list[Coroutine[Any, Any, None]] = [playing.client(session) for session in range(1, CLIENTS + 1)]
    tasks = [asyncio.create_task(one) for one in (*acting, playing.operator())]
    if playing.churns:
        await playing.churn()
    await torment(world, 0.0 if playing.churns else TORMENT_S, playing.begin, 0.3, playing.faults())
    playing.calm = True
    _, late = await asyncio.wait(tasks, timeout=CALM_S)
    for task in tasks:
        if task in late:
            raise Violation(f"a client still waits {CALM_S:g} s after the last fault: {_standing(playing)}")
        task.result()
    await playing.write(CLIENTS + 1, range(1, 2))
    await settle(playing)
    if playing.ends_badly:
        await playing.end_badly()
        await playing.write(CLIENTS + 3, range(1, 4))
        await settle(playing)
    for number, life in playing.lives.items():
        life.keeper.validate()
        state = life.machine.machine.snapshot()
        playing.add(number, "final", (life.keeper.applied, life.life), state)
    history.add(Happening(world.now, 0, "settled", members=tuple(playing.lives)))


async def found(playing: Play) -> None:
    """Let the voters begin a log together. In half of the runs founders crash meanwhile, most often the first one. When
    all are up again and no keeper has a log, they begin again, as members of a bus do
    (``runtime/keepers/keeper.py``)."""
    world, random = playing.world, playing.world.random
    voters = range(playing.voters)
    left = random.randrange(1, 4) if random.random() < 0.5 else 0
    until = world.now + CALM_S
    while left or playing._leader() is None or not all(world.hosts[number].up for number in voters):
        if world.now > until:
            raise Violation(f"no log was begun in {CALM_S:g} s: {_standing(playing)}")
        await asyncio.sleep(0.02)
        for number in voters:
            if not world.hosts[number].up and (random.random() < 0.1 or not left):
                await playing.begin(number, await world.restart(number))
        keepers = [playing.lives[number].keeper for number in voters]
        there = all(playing.lives[number].up for number in voters) and all(one.seat.may_speak for one in keepers)
        if there and all(keeper.ledger.fresh for keeper in keepers):
            keepers[0].found([keeper.id for keeper in keepers])
        if left and random.random() < 0.2 and any(not keeper.ledger.fresh for keeper in keepers):
            left, until = left - 1, world.now + CALM_S
            number = random.choice((0, 0, *voters))
            if world.hosts[number].up:
                world.crash(number)


async def settle(playing: Play) -> None:
    """Wait until all keepers have applied the same rows, and are whole."""
    until = playing.world.now + CALM_S
    while playing.world.now < until:
        if all_applied([life.keeper for life in playing.lives.values()]):
            return
        await asyncio.sleep(0.1)
    raise Violation(f"keepers differ {CALM_S:g} s after the last fault: {_standing(playing)}")


def all_applied(keepers: Sequence[Keeper]) -> bool:
    """True if all keepers are whole and have applied everything that a leader has committed. Equal states alone do not
    show it: keepers that were all restarted and have applied nothing are equal, too."""
    alike = len({keeper.applied for keeper in keepers}) == 1 and all(keeper.whole for keeper in keepers)
    return alike and any(
        one.leads
        and one.ledger.epoch_at(one.seat.commit - 1) == one.ledger.epoch
        and one.seat.applied_row == one.seat.commit
        for one in keepers
    )


def _standing(playing: Play) -> str:
    wanted = ("role", "epoch", "whole", "applied", "votes")
    return "; ".join(str({key: life.keeper.stats()[key] for key in wanted}) for life in playing.lives.values())


KEEPERS = Scenario(
    "keepers",
    "a durable log under crashes, bad disks and partitions",
    BEST_EFFORT,
    play,
    {
        "agreement": forced_too(agreement),
        "kept": forced_too(kept),
        "once": forced_too(once),
        "one_leader": forced_too(one_leader),
        "linearizable": forced_too(linearizable),
        "finished": forced_too(finished, before=False),
    },
    (
        *STRIKES,
        *("unsynced_lost", "torn_write", "bit_flip", "lost_tail", "lost_commits", "disk_full", "broken_store"),
        *("disk_lost", "forced"),
    ),
    members_min=3,
    members_max=7,
)
