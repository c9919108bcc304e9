"""Keepers in one thread, without a world: a kernel, disks, and words that a test may hold back."""

from collections import Counter
from random import Random

from pluribus.group.keepers import Keeper, Settings
from pluribus.group.keepers.words import decode
from pluribus.sim.machinery.disk import SimStore
from pluribus.sim.machinery.kernel import Kernel

QUICK = Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0)


class KernelClock:
    def __init__(self, cluster, number):
        self.cluster, self.number = cluster, number
        self.life = cluster.lives[number]

    def now(self):
        return self.cluster.kernel.now

    def call_later(self, delay_s, callback):
        return self.cluster.kernel.after(delay_s, lambda: self.cluster.lives[self.number] == self.life and callback())

    def call_soon(self, callback):
        self.call_later(0.0, callback)


class Port:
    """The carrier of one keeper."""

    def __init__(self, cluster, number):
        self.cluster, self.number = cluster, number

    def send(self, to, words):
        self.cluster.carry(self.number, to, words)

    def others(self):
        return [keeper.id for number, keeper in self.cluster.keepers.items() if number != self.number]


class Cluster:
    """``cut`` holds pairs of numbers between which nothing travels; ``heard`` counts what was said, by name."""

    def __init__(self, size, settings=QUICK, seed=1):
        self.kernel = Kernel()
        self.settings = settings
        self.faults = Counter()
        self.random = Random(seed)
        self.disks = [SimStore(self.kernel, Random(number), self.faults) for number in range(size)]
        self.lives = [0] * size
        self.keepers = {}
        self.states = {}
        self.reports = []
        self.roles = []
        self.cut = set()
        self.heard = Counter()
        for number in range(size):
            self.start(number)

    def start(self, number):
        keeper = self.keepers[number] = Keeper(
            "log",
            self.disks[number],
            Port(self, number),
            KernelClock(self, number),
            Random(f"{number}/{self.lives[number]}"),
            self.settings,
            self.reports.append,
        )
        state = self.states[number] = []
        keeper.on_commit = lambda first, commands: self._commit(state, first, commands)
        keeper.on_snapshot = lambda: b"|".join(state)
        keeper.on_restore = lambda index, data: state.__setitem__(slice(None), data.split(b"|") if data else [])
        keeper.on_role = lambda role, epoch: self.roles.append((number, role, epoch))
        keeper.start()
        return keeper

    @staticmethod
    def _commit(state, first, commands):
        assert first == len(state)
        state += commands

    def crash(self, number):
        self.lives[number] += 1
        self.disks[number].crash()
        del self.keepers[number]

    def restart(self, number):
        self.crash(number)
        return self.start(number)

    def restart_file(self, number):
        """As ``restart``, of one whose disk is a file."""
        self.crash(number)
        self.disks[number].open()
        return self.start(number)

    def carry(self, number, to, words):
        target = next((n for n, keeper in self.keepers.items() if keeper.id == to), None)
        self.heard[type(decode(words).word).__name__] += 1
        if target is None or (number, target) in self.cut or (target, number) in self.cut:
            return
        life = self.lives[target]
        self.kernel.after(0.001, lambda: self.lives[target] == life and self.keepers[target].receive(words))

    def isolate(self, number):
        self.cut = {(number, other) for other in range(len(self.disks)) if other != number}

    def run(self, seconds=1.0):
        self.kernel.run(self.kernel.now + seconds)
        for keeper in self.keepers.values():
            keeper.validate()

    def until(self, condition, seconds=30.0):
        end = self.kernel.now + seconds
        while not condition():
            assert self.kernel.now < end, [keeper.stats() for keeper in self.keepers.values()]
            self.run(0.02)

    def found(self, *numbers):
        """A log whose voters are these; returns when there is a leader."""
        self.run(0.1)
        self.keepers[numbers[0]].found([self.keepers[number].id for number in numbers])
        self.until(self.leader)
        return self

    def leader(self):
        leading = [n for n, keeper in self.keepers.items() if keeper.leads and keeper.seat.commit >= 2]
        return self.keepers[max(leading, key=lambda n: self.keepers[n].ledger.epoch)] if leading else None

    def number_of(self, keeper):
        return next(number for number, one in self.keepers.items() if one is keeper)

    def submit(self, number, *commands):
        """The answers, which come later."""
        answers = []
        self.keepers[number].submit_many(list(commands), lambda index, error: answers.append((index, error)))
        return answers

    def write(self, *commands, number=None):
        """Returns when they are committed."""
        number = self.number_of(self.leader()) if number is None else number
        answers = self.submit(number, *commands)
        self.until(lambda: answers)
        assert answers[0][1] is None, answers
        return answers[0][0]

    def settled(self):
        """Everybody who is there has applied the same."""
        self.until(lambda: len({tuple(self.states[number]) for number in self.keepers}) == 1)
        return list(self.states[next(iter(self.keepers))])
