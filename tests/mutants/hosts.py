"""The log host with one mistake each, such as a programmer makes. Campaigns must find them."""

import pluribus.group.host.host as host
import pluribus.group.host.machine as machine
import pluribus.group.host.table as table
import pluribus.group.host.tending as tending
import pluribus.group.host.user as user
import pluribus.group.keepers.leader as leader
import pluribus.sim.machinery.jobs as jobs
import pluribus.sim.scenarios.hosts as scenario
from pluribus.group.host.demand import Demands
from pluribus.group.host.host import Host
from pluribus.group.host.machine import Refusal
from pluribus.group.host.parts import Parts
from pluribus.group.host.table import PartedTable
from pluribus.group.host.user import UserMachine
from pluribus.group.host.words import DONE, REFUSED, Outcome
from pluribus.group.keepers.timekeeping import Timekeeper


class Halfway(Host):
    """Commits in one machine before the next one has prepared."""

    replaces = (scenario, "Host")

    def _prepared(self, row, place, word):
        results = []
        for number, commands in word.parts:
            hosted = self.machines.get(number)
            if hosted is None:
                return Outcome(REFUSED, 0, "not there")
            places = range(host.inner_place(place, 0), host.inner_place(place, len(commands)), host.INNER)
            effects = hosted.machine.prepare(row, places, commands)
            if isinstance(effects, Refusal):
                return Outcome(REFUSED, number, effects.reason)
            hosted.machine.commit(effects)
            results.append(effects.results)
        return Outcome(DONE, 0, "", results)


class Hollowing(tending.Tending):
    """Frees rows of which something is still needed."""

    replaces = (scenario, "Tending")

    def _free(self):
        super()._free()
        keeper = self._keeper
        keeper.hollow(list(range(keeper.ledger.start, keeper.ledger.snapshot.row)))


class Hoarding(tending.Tending):
    """Frees no row."""

    replaces = (scenario, "Tending")

    def _hollow(self):
        pass


class Jumping(Timekeeper):
    """Gives rows the time of the leader's wall clock."""

    replaces = (leader, "Timekeeper")

    def now_us(self, now):
        return int(self._wall() * 1e6)


class Timeless(tending.Tending):
    """Lets everything wait for ever that waits for a time."""

    replaces = (scenario, "Tending")

    def _tick(self):
        pass


class Generous(Demands):
    """Leaves what a consumer held with it when its owner is gone, and hands it out again."""

    replaces = (jobs, "Demands")

    def expire(self, owners):
        return {
            number: dict(consumer.held) for number, consumer in self.consumers.items() if consumer.owner in set(owners)
        }


class Repeating(Demands):
    """Gives a consumer that was forgotten the epoch that it had before."""

    replaces = (jobs, "Demands")

    def attach(self, number, owner, lease_us, tag=0):
        before = self.consumers.get(number)
        epoch = 1 if before is None else before.epoch + 1
        found = super().attach(number, owner, lease_us, tag)
        found.epoch = epoch
        return found


class Forgetful(Parts):
    """Forgets that a part changed while a snapshot was being taken."""

    replaces = (host, "Parts")

    def thaw(self, kept):
        super().thaw(kept)
        if kept:
            self.touched.clear()


class Late(Parts):
    """Encodes a part of a snapshot when its turn comes, as it is by then."""

    replaces = (machine, "Parts")

    def touch(self, name):
        self.touched.add(name)


class Untouched(PartedTable):
    """Changes a part of a user's table without a word to the next snapshot."""

    replaces = (table, "PartedTable")

    def __setitem__(self, key, value):
        packed = table._encode(key)
        cells = self._cells[table.crc32(packed) % table.PARTS]
        if packed in cells:
            cells[packed] = table._encode(value)
        else:
            super().__setitem__(key, value)


class Eager(UserMachine):
    """Runs a user's machine in the version that its code knows, whichever is in use."""

    replaces = (user, "UserMachine")

    def __init__(self, ground):
        super().__init__(ground)
        vars(self.machine).pop("version", None)


FOUND = {
    # The seed that finds the mutant, and what it finds.
    Halfway: (0, "clients still wait"),
    Generous: (0, "AssertionError"),
    Hollowing: (0, "is not in row"),
    Hoarding: (4, "that it had time to free"),
    Jumping: (0, "the time fell"),
    Timeless: (0, "although their time has come"),
    Repeating: (111, "for a former life"),
    Forgetful: (30, "has another part"),
    Late: (9, "has another part"),
}

DURABLE_REPLICA = {
    Untouched: (1, "nothing explains"),
    Eager: (8, "different states"),
}
"""The same for mutants that the scenario of durable replicas finds."""
