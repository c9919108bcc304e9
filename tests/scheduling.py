"""Who takes the work of a test worker that ended: xdist's own way waits for ever if that is near the end of a run.

It hands out all that the ended worker ever had, also what was done, and a worker that is given tests that are done
reports nothing and is never given more. The test that ended its worker is begun again and ends the next one. And a
worker that comes late gets one test, which it keeps until it hears of the one after it.
"""

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class Scheduling(LoadGroupScheduling):
    """``--dist loadgroup`` in which the work of an ended worker is done once, by whoever is there."""

    def remove_node(self, node: WorkerController) -> str | None:
        """What the ended worker had not done goes to others, but for the test that it ended in, which is returned: it
        has failed."""
        work = self.assigned_work.pop(node)
        begun = next(((unit, test) for unit in work.values() for test, done in unit.items() if not done), None)
        if begun is None:
            return None
        unit, ended = begun
        unit[ended] = True
        self.workqueue.update({line: unit for line, unit in work.items() if not all(unit.values())})
        for other in self.nodes:
            self._reschedule(other)
        return ended

    def schedule(self) -> None:
        """A worker begins a test when it knows of the next, or that there is none: who comes late needs two at once."""
        came_late = self.collection is not None
        super().schedule()
        if came_late:
            for node in self.nodes:
                self._reschedule(node)
