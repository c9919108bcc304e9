"""Compaction with one mistake each, such as a programmer makes. Campaigns must find them."""

import pluribus.runtime.styles.topics.compacting as compacting
from pluribus.pubsub.durable.compaction import Compaction
from pluribus.pubsub.durable.spans import Spans


class Greedy(Compaction):
    """Lets the last event of a key go with the others."""

    replaces = (compacting, "Compaction")

    def _kept(self, start, stop):
        whole, self._last = self._last, {key: offset + 1 for key, offset in self._last.items()}
        found = super()._kept(start, stop)
        self._last = whole
        return found


class Shortsighted(Compaction):
    """Takes what stands at the end of a stretch for the last event of its key."""

    replaces = (compacting, "Compaction")

    def _kept(self, start, stop):
        whole, self._last = self._last, {key: offset for key, offset in self._last.items() if offset < stop}
        found = super()._kept(start, stop)
        self._last = whole
        return found


class Trusting:
    """Writes a stretch in the place of whatever stands there by now."""

    of = Spans

    def first_of(self, start, end, rows):
        at = self.at(start)
        return at if at + len(rows) <= len(self) else -1


FOUND = {
    # The seed that finds the mutant, and what it finds.
    Greedy: (0, "one was to stay"),
    Shortsighted: (0, "one was to stay"),
    Trusting: (3, "has no key"),
}
