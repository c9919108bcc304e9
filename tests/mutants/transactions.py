"""Transactions with one mistake each, such as a programmer makes. Campaigns must find them."""

import pluribus.queues.machine as machine
from pluribus.group.host.host import Host
from pluribus.group.host.machine import Refusal
from pluribus.group.host.words import DONE, REFUSED, Outcome
from pluribus.queues.machine import Queue
from pluribus.transactions.machine import Transactions

_queue_prepare = Queue.prepare


class Half:
    """Does the parts of a transaction one after another, and stops at the first that is refused."""

    of = Host

    def _prepared(self, row, place, word):
        offset, results = 0, []
        for number, commands in word.parts:
            one = self.machines[number].machine
            self._work(number)
            one.ground.now_us = self._log.time_us
            first = (offset + 1) * (1 << 17) + place
            places = range(first, first + len(commands) * (1 << 17), 1 << 17)
            offset += len(commands)
            effects = one.prepare(row, places, commands)
            if isinstance(effects, Refusal):
                return Outcome(REFUSED, number, effects.reason)
            one.commit(effects)
            results.append(effects.results)
        return Outcome(DONE, 0, "", results)

    def _release_all(self, row, parts):
        """What was done is needed."""


class Seen:
    """What a prepared transaction received is seen by others: it is handed out again when its consumer is gone."""

    of = Queue

    def owners(self):
        return self.demands.owners()

    def lease_us(self, owner):
        return self.demands.lease_us(owner)

    def expire(self, owners):
        self.parts.touch("totals")
        for number, held in self.demands.expire(owners).items():
            self._left(number)
            self._come_back(held, True)
        self._hand_out()


class Trusting:
    """Acknowledges for a transaction what its consumer does not hold any more."""

    of = Queue

    def prepare(self, row, places, commands):
        found = _queue_prepare(self, row, places, commands)
        if isinstance(found, Refusal) and found.reason == machine.LATE:
            return machine._Steps([Outcome(DONE) for _ in commands], [])
        return found


class Impatient:
    """A prepared transaction ends by the lease that it had before."""

    of = Transactions

    def due_us(self):
        return min((one.since_us + 2_000_000 for one in self.acting.values()), default=None)

    def tick(self):
        for id in sorted(self.acting):
            if self.acting[id].since_us + 2_000_000 <= self.ground.now_us:
                self._end(id, False)


FOUND = {
    Half: (14, "are there twice"),
    Seen: (0, "are there twice"),
    Trusting: (0, "are there twice"),
    Impatient: (0, "could not be decided"),
}
