"""A router and occupants at one table: words pass by hand, time is an argument, any word may be dropped."""

from collections import Counter
from random import Random

from pluribus.slots.check import plan_of
from pluribus.slots.map import BusMap
from pluribus.slots.occupant import Occupant
from pluribus.slots.router import Router
from pluribus.slots.words import DATA_PATH
from pluribus.wire.questions import unwrapped, wrapped

ROUTER = 1_000


class Table:
    """Occupant number n is member n."""

    def __init__(self, plan, **options):
        self.now = 0.0
        self.said = Counter()
        self.heard = []
        """Words in the order in which they were said: sender, to, word."""
        self.lost = lambda sender, to, word: False
        self.machines = {}
        self.adverts = []
        self.router = Router(BusMap(plan_of(plan)), ROUTER, 0.0, Random(1), **options)
        self.machines[ROUTER] = self.router

    def enroll(self, member, slot, **options):
        found = Occupant(slot, member, self.now, **options)
        self.machines[member] = found
        self.settle()
        return found

    def settle(self):
        """Pass words until nobody has anything to say."""
        while True:
            for machine in list(self.machines.values()):
                if machine.due_at is not None and machine.due_at <= self.now:
                    machine.tick(self.now)
            if not any(machine.out for machine in self.machines.values()):
                return
            for member, machine in list(self.machines.items()):
                said, machine.out = machine.out, []
                for to, word in said:
                    self.said[type(word)] += 1
                    self.heard.append((member, to, word))
                    for other, hearer in list(self.machines.items()):
                        if other != member and to in (0, other) and not self.lost(member, other, word):
                            hearer.take(member, word, self.now)
            self.adverts += self.router.adverts
            self.router.adverts = []

    def pass_time(self, seconds, step=0.05):
        until = self.now + seconds
        while self.now < until:
            self.now += step
            self.settle()

    def send(self, member, port, body=b"x", **options):
        queued = self.machines[member].send(port, wrapped(body), self.now, **options)
        self.settle()
        return queued

    def read(self, member, port="in"):
        """Take and acknowledge everything."""
        found, occupant = [], self.machines[member]
        while (arrived := occupant.take_next(port, self.now)) is not None:
            found.append(unwrapped(arrived.body))
            occupant.acknowledge(arrived)
        self.settle()
        return found

    def cost(self):
        """Messages on the way of data since it was last asked."""
        found = sum(self.said[word] for word in DATA_PATH)
        self.said.clear()
        return found

    def validate(self):
        for machine in self.machines.values():
            machine.validate()
