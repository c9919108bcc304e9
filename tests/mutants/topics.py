"""Topics with one mistake each, such as a programmer makes. Campaigns of the scenario ``topics`` must find them."""

from pluribus.pubsub.backlog import Backlog
from pluribus.pubsub.shares import Share
from pluribus.pubsub.table import Table
from pluribus.pubsub.words import Finished
from pluribus.runtime.styles.topics.neighbours import Neighbours
from pluribus.runtime.styles.topics.sharing import Sharing
from pluribus.runtime.styles.topics.subscription import Subscription


class Remembering:
    """Goes on believing who was interested in a topic when it was first asked for."""

    of = Table

    def _forget(self):
        pass


class Reserved:
    """Wants an order, and tells nobody."""

    of = Neighbours

    async def want(self, base, want):
        await self._noted(int(base.group.me), want)


class Generous:
    """Gives a shared event to everybody who is in the set."""

    of = Share

    def give(self, takers, events, *, again=False):
        for deliver in self.mine.values():
            deliver(events)


class Impatient:
    """Takes the newest of what waits first."""

    of = Backlog

    def take(self):
        run = self._runs.pop()
        self.waiting -= run.count
        if run.hold is not None:
            run.hold.let_go()
        return run.events() if not run.missed else []


class Distracted:
    """Loses an event now and then, in total order alone."""

    of = Subscription

    def _take(self):
        events = list(take(self))
        me = int(self._topics.bus.me)
        return iter([event for event in events if not (self.order and (event.id[1] + me) % 30 == 0)])


class Lumping:
    """Says that events are finished ten at a time."""

    of = Sharing

    async def finished(self, subscription, upto):
        subscription.done = getattr(subscription, "done", 0) + 1
        if subscription.done % 10 == 0:
            await finished(self, subscription, upto)


class Careless:
    """Says that an event is finished, and hands out the next before anybody has heard that."""

    of = Sharing

    async def finished(self, subscription, upto):
        key, number = subscription.share
        self._say(Finished(key, number, (int(upto[0]), upto[1])))


take = Subscription._take
finished = Sharing.finished

FOUND = {
    Remembering: (0, "never"),
    Reserved: (1, "never came"),
    Generous: (1, "who share"),
    Lumping: (1, "had finished it"),
    Careless: (1, "had finished it"),
    Distracted: (1, "one missed something"),
    Impatient: (1, "of the same publisher"),
}
