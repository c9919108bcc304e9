"""Topics with one mistake each, such as a programmer makes. Campaigns of the scenario ``topics`` must find them."""

import msgspec

from pluribus.pubsub.backlog import Backlog
from pluribus.pubsub.shares import Share, _packed
from pluribus.pubsub.table import Table
from pluribus.pubsub.words import Grant
from pluribus.runtime.styles.topics.neighbours import Neighbours
from pluribus.runtime.styles.topics.sharing import Sharing
from pluribus.runtime.styles.topics.subscription import Subscription
from pluribus.runtime.styles.topics.worker import Worker


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
    """Gives away a shared event twice: to a subscriber that asked, and to the next one too."""

    of = Share

    def deal(self, dealer, newest):
        word = deal(self, dealer, newest)
        if len(self.wants) > 1 and len(word.grants) == 1:
            grant = word.grants[0]
            other = next(taker for taker in self.wants if taker != (grant.member, grant.number))
            more = Grant(other[0], other[1], self.wants[other][0], grant.ids, [_packed(self.waiting[grant.ids[0]])])
            word = msgspec.structs.replace(word, grants=[grant, more])
        return word


class Hoarding:
    """Keeps the events for which nobody waits any more."""

    of = Worker

    def _look(self):
        pass


class Nervous:
    """Takes everybody for dead when somebody leaves: what others hold waits again."""

    of = Share

    def left(self, taker):
        left(self, taker)
        for other in list(self.held):
            self._wait_again(self.held.pop(other).items(), again=True)


class Careless:
    """Forgets what a subscriber held that is gone."""

    of = Share

    def left(self, taker):
        self.held.pop(taker, None)
        left(self, taker)


class Miserly:
    """Forgets who waits for an event when somebody leaves."""

    of = Share

    def left(self, taker):
        left(self, taker)
        self.wants.clear()


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

    async def say(self, worker, word):
        owed = [*getattr(worker, "owed", []), *word.done]
        done, worker.owed = (owed, []) if len(owed) >= 10 else ([], owed)
        await say(self, worker, msgspec.structs.replace(word, done=done))


take = Subscription._take
deal, left, say = Share.deal, Share.left, Sharing.say

FOUND = {
    Remembering: (0, "never"),
    Reserved: (1, "never came"),
    Generous: (35, "who share"),
    Nervous: (2, "had begun and is there"),
    Careless: (18, "nobody began it again"),
    Hoarding: (110, "never came"),
    Miserly: (4, "never came"),
    Lumping: (2, "had finished it"),
    Distracted: (1, "one missed something"),
    Impatient: (1, "of the same publisher"),
}
