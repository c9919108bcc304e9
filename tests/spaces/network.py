"""A bad network for pure members of a space: it loses, doubles, delays and reorders words; members crash and come."""

from heapq import heappop, heappush
from random import Random

from pluribus.spaces.roster import Enter, Open, Roster, Strike, encode


class Network:
    """``make(me, worker, random)`` makes a member; ``encode`` and ``decode`` carry its words."""

    def __init__(self, seed, make, coder, loss=0.1):
        self.random = Random(seed)
        self.now = 0.0
        self.make = make
        self.coder = coder
        self.loss = loss
        self.members = {}
        self.roster = Roster()
        self.events = []
        self.count = 0
        self.on_results = lambda member: None
        self.cut = set()

    def at(self, delay, what):
        self.count += 1
        heappush(self.events, (self.now + delay, self.count, what))

    def enter(self, me, holds=True):
        worker = self.random.getrandbits(40) + 1
        member = self.members[me] = self.make(me, worker, holds, Random(self.random.random()))
        self.change(Enter(me, worker, holds))
        return member

    def crash(self, me):
        del self.members[me]
        self.at(self.random.random(), lambda: self.change(Strike([me])))

    def exclude(self, me):
        """It lives on, and the others go on without it; it enters again later."""
        member = self.members[me]
        self.cut.add(me)
        self.at(0.5 * self.random.random(), lambda: self.change(Strike([me]), but=me))

        def back():
            self.cut.discard(me)
            if self.members.get(me) is member:
                epoch = member.epoch
                self.change(Enter(me, member.worker, member.holds, 0 if epoch is None else epoch.number))

        self.at(1.0 + 2 * self.random.random(), back)

    def change(self, command, but=None):
        self.roster.apply(0, encode(command))
        epoch = self.roster.epoch
        for me, member in list(self.members.items()):
            if me != but and me not in self.cut:
                self.at(0.1 * self.random.random(), lambda me=me, member=member: self.tell(me, member, epoch))

    def tell(self, me, member, epoch):
        if self.members.get(me) is member and me not in self.cut:
            member.enter(epoch, self.now)

    def settle(self):
        for me, member in list(self.members.items()):
            out, member.out = member.out, []
            for to, word in out:
                data = self.coder.encode(word)
                copies = 1 if to == me else (self.random.random() >= self.loss) + (self.random.random() < self.loss / 2)
                for _ in range(copies):
                    delay = 0.0 if to == me else 0.01 * self.random.random() ** 3 + 0.001
                    self.at(delay, lambda me=me, to=to, data=data: self.deliver(me, to, data))
            self.on_results(member)
            if member.opening:
                epoch, member.opening = member.opening, 0
                if me not in self.cut:
                    self.change(Open(epoch))

    def deliver(self, sender, to, data):
        if to in self.members and sender in self.members and not (self.cut & {sender, to} and sender != to):
            self.members[to].heard(sender, self.coder.decode(data), self.now)

    def run(self, seconds):
        end = self.now + seconds
        self.settle()
        while True:
            due = min((member.due_at for member in self.members.values()), default=float("inf"))
            upcoming = self.events[0][0] if self.events else float("inf")
            if min(due, upcoming) > end:
                self.now = end
                return
            if upcoming <= due:
                self.now, _, what = heappop(self.events)
                what()
            else:
                self.now = max(self.now, due)
                for member in self.members.values():
                    if member.due_at <= self.now:
                        member.tick(self.now)
                        assert member.due_at > self.now, "a member is due for ever"
            self.settle()
