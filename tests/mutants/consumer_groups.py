"""Consumer groups with one mistake each, such as a programmer makes. Campaigns must find them."""

import pluribus.runtime.keepers.desk as desk
import pluribus.runtime.styles.topics.durable as durable
from pluribus.pubsub.consumer_groups.machine import ConsumerGroup
from pluribus.runtime.styles.topics.shared import SharedSubscription


class Forgetting(ConsumerGroup):
    """What a member held whose lease ended is nobody's any more."""

    replaces = (desk, "ConsumerGroup")

    def expire(self, owners):
        self.parts.touch("group")
        for held in self.demands.expire(owners).values():
            for thing in held:
                self._done(thing)
        self._hand_out()


class Keyless(ConsumerGroup):
    """Hands out the next event of a key while the one before is held."""

    replaces = (desk, "ConsumerGroup")

    def _add(self, topic, place, offset, size, key):
        super()._add(topic, place, offset, size, 0)


class Again(ConsumerGroup):
    """Hands out once more what was settled in the last command before the state was read ahead."""

    replaces = (desk, "ConsumerGroup")

    def _ahead(self, command):
        place = self.places.get(command.topic)
        if place is not None and command.events and command.start == place.seen and not place.open and place.seen:
            self._add(command.topic, place, place.seen - 1, 1, 0)
        return super()._ahead(command)


class Hasty(SharedSubscription):
    """Settles what it was given before anybody handled it."""

    replaces = (durable, "SharedSubscription")

    async def _take_given(self, given):
        await super()._take_given(given)
        for event in self._fetched:
            thing = self._hands.get((event.topic, event.offset))
            if thing is not None and thing not in self._acked:
                self._acked.append(thing)
                self._settle_soon()


FOUND = {
    # The seed that finds the mutant, and what it finds.
    Forgetting: (0, "no member of the group got it"),
    Keyless: (0, "which has the same key"),
    Again: (0, "and came again"),
    Hasty: (0, "no member of the group got it"),
}
