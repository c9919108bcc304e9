"""Causal and semantic order with one mistake each, such as a programmer makes. Campaigns must find them."""

from bisect import bisect_right
from operator import ge

from pluribus.core.frame import Ahead, Frame
from pluribus.core.intervals import Intervals
from pluribus.layers.causal import Causal, CausalGroup
from pluribus.layers.semantic import Semantic
from pluribus.layers.semantic.batch import Batch
from pluribus.layers.semantic.forest import LATE, READY, Forest


class Careless(Causal):
    """Does not look at the count of the youngest member."""

    def event_up(self, event):
        super().event_up(event)
        for group in self._groups.values():
            group.__class__ = CarelessGroup


class CarelessGroup(CausalGroup):
    __slots__ = ()

    def ready(self, needs):
        return all(map(ge, self.delivered[:-1], needs))


class Hasty(Causal):
    """Passes one early batch in a while at once."""

    def up(self, frame):
        early = self.early
        super().up(frame)
        if self.early > early and self.early % 3 == 0:
            group = self._groups[frame.group]
            place = group.places[frame.sender]
            if len(group.waiting[place].batches) == 1:
                del group.waiting[place]
                self._deliver(group, place, frame)


class Mumbling(Causal):
    """Does not say of one batch in ten what was delivered before it, and says so with the next."""

    batches = 0

    def down(self, frame):
        self.batches += 1
        group = self._groups.get(frame.group)
        if group is not None and self.batches % 10 == 0:
            news, group.news = group.news, False
            super().down(frame)
            group.news = news
        else:
            super().down(frame)


class Stubborn(Causal):
    """Forgets every tenth time to look at what waits."""

    looks = 0

    def _release(self, group):
        self.looks += 1
        if self.looks % 10:
            super()._release(group)


class Careful(Causal):
    """Delivers at the end of a view what should be dropped: better early than never, it seemed."""

    def _finish(self):
        for group in self._groups.values():
            for place, early in group.waiting.items():
                for frame, _ in early.batches:
                    self._deliver(group, place, frame)
            group.waiting.clear()
        super()._finish()


class Remembering(Causal):
    """Goes on with the counts of the old view when the members are the same."""

    def _finish(self):
        self._old = self._groups.copy()
        super()._finish()

    def event_up(self, event):
        super().event_up(event)
        group = self._groups.get(getattr(event, "group", -1))
        old = getattr(self, "_old", {}).pop(getattr(event, "group", -1), None)
        if group is not None and old is not None and old.places == group.places:
            group.delivered, group.told = old.delivered, old.told


class Impatient(Semantic):
    """Delivers one late answer of ten early."""

    def event_up(self, event):
        super().event_up(event)
        for group in self._groups.values():
            group.__class__ = ImpatientGroup


class ImpatientGroup(Forest):
    __slots__ = ()

    def verdict(self, parent, child, batch, *, older):
        found = super().verdict(parent, child, batch, older=older)
        return READY if found == LATE and child[1] % 10 == 0 else found


class Oblivious(Semantic):
    """Forgets one time in ten to look for answers to what came."""

    looks = 0

    def _answers_to(self, group, sender, numbers):
        self.looks += 1
        if self.looks % 10:
            super()._answers_to(group, sender, numbers)


class Discreet(Semantic):
    """Does not mark the orphans of a view."""

    def _finish(self, group):
        for batch, _, _, _ in group.waiting.values():
            batch.__class__ = DiscreetBatch
        super()._finish(group)


class DiscreetBatch(Batch):
    __slots__ = ()

    def part(self, start, stop):
        self.orphans.clear()
        return super().part(start, stop)


class Severe(Semantic):
    """Drops what waits when the view changes."""

    def _finish(self, group):
        group.waiting.clear()
        for stream in group.streams.values():
            stream.children.clear()
        super()._finish(group)


class Misplaced(Semantic):
    """Takes the place in a batch for the place in its parts: the last part has the number of the first."""

    def _deliver(self, group, ready):
        passed = self.pass_up

        def wrong(frame: Frame) -> None:
            if frame.count == 1 and frame.first and frame.first == ready[0][0].first + 1:
                frame.first -= 1
            passed(frame)

        self.pass_up = wrong
        try:
            super()._deliver(group, ready)
        finally:
            self.pass_up = passed


class Forgetful(Semantic):
    """Forgets at a view change what was delivered before: answers to it are taken for orphans."""

    def _finish(self, group):
        super()._finish(group)
        for sender in [sender for sender in group.streams if sender % 2]:
            del group.streams[sender]


class Skipping(Semantic):
    """Takes what a stream has not brought yet for what was before its time."""

    def up(self, frame):
        if frame.headers and type(frame.headers[-1]) is Ahead:
            frame.headers.pop()
        super().up(frame)


class OffByOne(Intervals):
    """Takes the number behind an interval for one of it."""

    __slots__ = ()
    of = Intervals

    def __contains__(self, number):
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at] + 1


FOUND = {
    # The seed of the campaign that finds it, and what it finds. `python -m tests.mutants` hunts for new ones.
    Careless: (4, "which its sender had delivered"),
    Hasty: (4, "which its sender had delivered"),
    Mumbling: (4, "which its sender had delivered"),
    Stubborn: (220, "but only one delivered"),
    Careful: (15, "which its sender had delivered"),
    Remembering: (4, "which its sender had delivered"),
    Impatient: (0, "before its parent"),
    Oblivious: (10, "it need not wait"),
    Discreet: (0, "before its parent"),
    Severe: (0, "before its parent"),
    Misplaced: (0, "with another body"),
    Forgetful: (0, "as an orphan, after its parent"),
    Skipping: (5, "before its parent"),
    OffByOne: (0, "before its parent"),
}
