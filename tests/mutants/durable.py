"""Durable topics with one mistake each, such as a programmer makes. Campaigns must find them."""

import pluribus.pubsub.durable.machine as machine
import pluribus.runtime.keepers.desk as desk
import pluribus.runtime.styles.topics.desk as topics_desk
import pluribus.runtime.styles.topics.durable as durable
from pluribus.group.host.tending import Tending
from pluribus.pubsub.durable.batch import outline_of
from pluribus.pubsub.durable.commands import DONE, Outcome
from pluribus.pubsub.durable.machine import TopicsMachine
from pluribus.pubsub.durable.reading import Reading
from pluribus.pubsub.durable.stages import Stages
from pluribus.runtime.styles.topics.follower import DurableSubscription
from pluribus.runtime.styles.topics.publisher import Publisher


class Doubling(TopicsMachine):
    """Appends a batch as often as it is sent."""

    replaces = (desk, "TopicsMachine")

    def _not_next(self, session, first, last, due):
        self.streams.record(session, first - 1)
        return Outcome(DONE, -1)

    def _append(self, row, place, command):
        session, first, last, *_ = outline_of(command)
        if first != self.streams.next(session):
            self._not_next(session, first, last, 0)
        return super()._append(row, place, command)


class Overlooking(Reading):
    """Reads batches that did not count."""

    replaces = (topics_desk, "Reading")

    def _scan(self, *asked):
        passed, self.topics.passed_over = self.topics.passed_over, set()
        try:
            return super()._scan(*asked)
        finally:
            self.topics.passed_over = passed


class Confident(Publisher):
    """Takes a lost answer for a good one."""

    replaces = (durable, "Publisher")

    def _go_on(self):
        if self._again and self._puts == 0:
            for batch in list(self._under_way):
                self._confirm(batch)
            self._again = False
        super()._go_on()


class Wasteful(Tending):
    """Forgets rows as soon as a snapshot holds what they did."""

    replaces = (desk, "Tending")

    def _free(self):
        self._keeper.keep_rows(self._keeper.row + 1)


class Twice(Stages):
    """Does not remember which batch was committed last."""

    replaces = (machine, "Stages")

    def publish(self, command):
        before = {key: attempt for key, attempt in self._attempts.items() if key[0] == command.writer}
        outcome, parts, _ = super().publish(command)
        self._writers.pop(command.writer, None)
        self._attempts.update(before)
        return outcome, parts, []


class Eager(DurableSubscription):
    """Commits what it was sent, before anybody handled it."""

    replaces = (durable, "DurableSubscription")

    def _take(self, found):
        super()._take(found)
        for event in self._ready:
            self._handled[event.topic] = event.offset + 1


FOUND = {
    # The seed that finds the mutant, and what it finds.
    Doubling: (0, "stands behind"),
    Overlooking: (10, "did not come to offset"),
    Confident: (0, "was acknowledged as"),
    Wasteful: (0, "cannot read what they keep"),
    Twice: (1, "stands behind"),
    Eager: (2, "the subscriber began again at"),
}
