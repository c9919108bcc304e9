"""The bare kernel: virtual time and a heap of events. Equal times run in the order in which they were asked for."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from ...core.errors import SimulationError
from ...core.limits import SIM_EVENTS_MAX


class Scheduled:
    """An event that may still be cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None] | None) -> None:
        self.callback = callback

    def cancel(self) -> None:
        self.callback = None


class Kernel:
    """Everything that happens in a world happens here, one event after another, in one thread."""

    __slots__ = ("_heap", "_sequence", "events", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Scheduled]] = []
        self._sequence = 0

    def at(self, time_s: float, callback: Callable[[], None]) -> Scheduled:
        """Run at a time; a time that is past means now."""
        self._sequence += 1
        scheduled = Scheduled(callback)
        heappush(self._heap, (time_s if time_s > self.now else self.now, self._sequence, scheduled))
        return scheduled

    def after(self, delay_s: float, callback: Callable[[], None]) -> Scheduled:
        return self.at(self.now + delay_s, callback)

    def next_at(self) -> float | None:
        """The time of the next event; None when there is none."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heappop(heap)
        return heap[0][0] if heap else None

    def run(self, until_s: float, stop: Callable[[], bool] | None = None) -> None:
        """Run events up to a time, or until ``stop`` says so after one of them. Time ends at ``until_s`` if not
        stopped."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            time_s, _, scheduled = heappop(heap)
            callback = scheduled.callback
            if callback is None:
                continue
            self.now = time_s
            self.events += 1
            callback()
            if stop is not None and stop():
                return
            if self.events > SIM_EVENTS_MAX:
                raise SimulationError(
                    f"{SIM_EVENTS_MAX:,} events in one world: a protocol sends without end, or split the run"
                )
        if until_s != float("inf"):
            self.now = max(self.now, until_s)
