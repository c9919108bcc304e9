"""The leading keeper compacts topics that keep only the last event of each key.

What is left out, and why that is right, is in ``pubsub/durable/compaction.py``. Here one topic after another has its
pass, a slice at a time, and what a slice gives is ordered before the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.errors import PluribusError
from ....core.ports import Timer
from ....pubsub.durable import commands
from ....pubsub.durable.commands import DONE, Compact
from ....pubsub.durable.compaction import Compaction, is_due
from ....pubsub.durable.machine import TopicsMachine
from .desk import TOPICS

if TYPE_CHECKING:
    from ...keepers.desk import KeeperDesk
    from .desk import TopicsDesk

LOOK_S = 0.5
"""Seconds between two looks for topics to compact."""
PAUSE_S = 0.002
"""Seconds between two slices, so that other tasks have their turns."""


class CompactingDesk:
    """Compaction on one keeper. ``look`` is called where this keeper leads, as often as one likes."""

    def __init__(self, desk: KeeperDesk, topics: TopicsDesk) -> None:
        self._desk = desk
        self._topics = topics
        self._clock = desk.keeper.seat.clock
        self._pass: Compaction | None = None
        self._timer: Timer | None = None
        self._next_s = 0.0
        self._turn = 0
        self.dropped = 0
        """Events that this keeper left out."""

    def stop(self) -> None:
        self._pass = None
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Begin with a topic that is due, unless a pass is under way."""
        if self._pass is not None or self._clock.now() < self._next_s:
            return
        self._next_s = self._clock.now() + LOOK_S
        hosted = self._desk.host.named(TopicsMachine.kind)
        if hosted is None:
            return
        keyed = list(self._topics.topics.keyed.items())
        self._turn += 1
        at = self._turn % max(len(keyed), 1)
        for name, topic in (*keyed[at:], *keyed[:at]):
            if is_due(topic):
                self._pass = Compaction(self._topics.reading, name.decode(), topic)
                self._later()
                return

    def _later(self) -> None:
        self._timer = self._clock.call_later(PAUSE_S, self._step)

    def _step(self) -> None:
        self._timer = None
        one = self._pass
        if one is None:
            return
        if not self._desk.keeper.leads or self._topics.topics.keyed.get(one.name.encode()) is not one.topic:
            self._pass = None  # another one leads, or the state is another one
            return
        try:
            wanted = one.step()
        except PluribusError:  # damaged here: when the row was mended
            self._pass = None
            return
        if wanted is None:
            self._later()
        else:
            self._order(one, wanted)

    def _order(self, one: Compaction, wanted: Compact) -> None:
        def done(index: int, error: PluribusError | None) -> None:
            outcomes = None if error is not None else self._desk.host.take_outcomes(index, 1)
            if self._pass is not one:
                return
            if not outcomes:
                self._pass = None
                return
            one.answered(outcomes[0].status == DONE)
            if one.done:
                self.dropped += one.dropped
                self._pass = None
            else:
                self._later()

        try:
            self._desk.keeper.submit_many([commands.encode(wanted)], done, TOPICS)
        except PluribusError:
            self._pass = None
