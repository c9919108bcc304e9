"""The log host in the memory of a group with one mistake each. Campaigns must find them."""

import pluribus.runtime.machines.group_host as runtime
import pluribus.sim.machinery.jobs as jobs
from pluribus.group.host.demand import Demands
from pluribus.group.host.volatile import VolatileLog, VolatileTending


class Repeated(Demands):
    """Tells a consumer again, as new, what it was told before."""

    replaces = (jobs, "Demands")

    def given(self, number, epoch, after):
        return super().given(number, epoch, max(after - 1, 0))


class Bodiless(VolatileLog):
    """Hands the state to joiners, and no bodies."""

    replaces = (runtime, "VolatileLog")

    def _snapshot(self):
        kept, self._bodies = self._bodies, {}
        try:
            return super()._snapshot()
        finally:
            self._bodies = kept


class Falling(VolatileLog):
    """Has every row bring its own time, earlier or later."""

    replaces = (runtime, "VolatileLog")

    @property
    def now_us(self):
        return int(self._wall() * 1e6)

    def _commit(self, first, rows):
        for at, row in enumerate(rows, first):
            self.time_us = 0
            super()._commit(at, [row])


class Hoarding(VolatileTending):
    """Leaves members that are gone what they held."""

    replaces = (runtime, "VolatileTending")

    def _expire(self):
        pass


class Timeless(VolatileTending):
    """Lets everything wait for ever that waits for a time."""

    replaces = (runtime, "VolatileTending")

    def _tick(self):
        pass


class Spending(VolatileTending):
    """Never writes anything forward: a row with one live byte keeps its neighbours."""

    replaces = (runtime, "VolatileTending")

    def _forward(self):
        pass


FOUND = {
    # The seed that finds the mutant, and what it finds.
    Repeated: (0, "told twice as new"),
    Bodiless: (0, "has the body"),
    Falling: (0, "the time fell"),
    Hoarding: (0, "still own consumers"),
    Timeless: (0, "although their time has come"),
    Spending: (0, "dead among them"),
}
