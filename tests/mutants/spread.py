"""The tree with one mistake each, such as a programmer makes. The campaign must find them."""

from pluribus.layers.reliable import Reliable
from pluribus.layers.spread import Crowd, Spread
from pluribus.layers.spread.gossip import Gossip
from pluribus.layers.spread.inheriting import Tree
from pluribus.layers.spread.partial import PartialView
from pluribus.layers.spread.streams import ROOT


def mutant(part: type[Tree] | type[Gossip]) -> type[Spread]:
    which = "tree_type" if issubclass(part, Tree) else "gossip_type"
    return type(part.__name__, (Spread,), {which: part, "__doc__": part.__doc__})


class Abandoning(Tree):
    """Goes round a dead child and forgets those whom it should have served."""

    def _bypass(self, stream, number, record, task, child):
        first, _ = task.waiting[child]
        task.waiting[child] = (first, 0)
        super()._bypass(stream, number, record, task, child)


class Trusting(Tree):
    """Waits for a dead child for ever."""

    def suspected(self, member):
        self._suspected.add(member)

    def _bypass(self, stream, number, record, task, child):
        self._give(stream, number, record, task, child)


class Premature(Tree):
    """Acknowledges a message when it has it, and not when its sub-list does."""

    def _take_on(self, stream, number, record, parent, scope, shape, without=()):
        super()._take_on(stream, number, record, parent, scope, shape, without)
        if parent != ROOT:
            self._acknowledge(parent, stream, number, scope, set())


class Easygoing(Tree):
    """A proxy that is content with the first child's answer."""

    def _child_answered(self, stream, number, record, child, have):
        for task in record.tasks.values():
            if task.parent == ROOT and child in task.waiting:
                task.waiting = {child: task.waiting[child]}
        super()._child_answered(stream, number, record, child, have)


class Talkative(Tree):
    """Passes up whatever comes, as often as it comes."""

    def came_down(self, frame, down):
        stream = self._streams.get((down.along, down.proxy, down.stream))
        record = stream.records.get(down.number) if stream is not None else None
        super().came_down(frame, down)
        if record is not None and stream.next > down.number:
            self._pass(record)


class Forgetful(Tree):
    """Does not remember which submissions it passed up."""

    def _pass(self, record):
        self._seen.clear()
        super()._pass(record)


class Selfish(Tree):
    """An heir that closes the stream where its own knowledge ends."""

    def _fetch_and_send(self, stream, estate, answers, living, now):
        self._close(stream, estate, stream.next, living)


class Rash(Tree):
    """An heir that does not wait for everybody's answer."""

    def _settle_estate(self, stream, estate, now):
        if estate.answers:
            super()._fetch_and_send(stream, estate, list(estate.answers.values()), set(estate.answers), now)
        else:
            super()._settle_estate(stream, estate, now)


class Disinherited(Tree):
    """Nobody looks after the streams of the dead."""

    def _look_after(self, stream, now):
        pass


class Modest(Tree):
    """Does not tell the heir what it holds: the heir will ask, if it knows of the stream."""

    def _look_after(self, stream, now):
        if stream.listed.members[self._heir(stream)] == self._me:
            super()._look_after(stream, now)


class Hoarding(Tree):
    """The permission to forget only travels on the next message."""

    def _tell_done(self, stream):
        stream.told_done = stream.done

    def done_please(self, member, word):
        pass


class Resigned(Tree):
    """Hands a message to one proxy, and if that one dies, so be it."""

    def _submit_again(self, number, submission):
        del self._submissions[number]


class Unseeing(Tree):
    """Never asks for what it misses: the timers will see to it."""

    def _mind_gaps(self, stream, now):
        return float("inf")

    def _expired(self, stream, number, record, task, now):
        task.due_at = now + 1.0


class Blunt(Tree):
    """Takes it that whoever was gone round is dead."""

    def _reached_all(self, stream, number, record, task):
        task.skipped = set()
        super()._reached_all(stream, number, record, task)


class Incurious(Gossip):
    """Tells what it hears, and never compares."""

    def _compare(self):
        self._timer = None

    def _ask_about_gap(self, tale, number, teller):
        pass


class Spendthrift(Gossip):
    """Forgets a message when it has passed it up."""

    def _forget(self, tale):
        for number in [number for number in tale.frames if number < tale.next]:
            del tale.frames[number]


class Gullible(Gossip):
    """Takes it that who was told a message has it."""

    def _tell(self, tale, number, member, *, spent):
        super()._tell(tale, number, member, spent=spent)
        place = tale.listed.places[member]
        tale.known[place] = max(tale.known[place], number + 1)


class Solitary(Crowd):
    """Never compares what it has with a neighbour."""

    def _compare(self):
        pass


class Eager(Crowd):
    """Does not wait for a message that is missing."""

    def _heard(self, frame, word):
        told = self._tales.get(word.origin)
        if told is not None and word.number > told.next:
            told.next = word.number
        super()._heard(frame, word)


class Echoing(Crowd):
    """Passes up what it has heard before, once in a while."""

    def _heard(self, frame, word):
        before = self.heard_again
        super()._heard(frame, word)
        if self.heard_again > before and self.heard_again % 50 == 0 and frame.group in self._groups:
            copy = frame.copy()
            copy.sender, copy.to = word.origin, 0
            self.pass_up(copy)


class Clinging(Crowd):
    """Keeps neighbours that do not answer."""

    def start(self):
        super().start()
        self.view.__class__ = ClingingView


class ClingingView(PartialView):
    def bury(self, member):
        return False

    def begin_swap(self, count, own):
        begun = super().begin_swap(count, own)
        if begun is not None:
            self._known[begun[0]] = (begun[1], 0)
        return begun


class Choosy(Crowd):
    """Never gives up a neighbour for a newcomer, and never takes a pointer that it is offered."""

    def start(self):
        super().start()
        self.view.__class__ = ChoosyView


class ChoosyView(PartialView):
    def _merge(self, pointers, given_away):
        pass

    def replace_one(self, member, address):
        return None if self.full else super().replace_one(member, address)


class Presuming(Reliable):
    """Answers for those below it before they have answered."""

    def _sum_up(self, key, stream, *, forced):
        owner, group, _ = key
        _, children = self._summing.around(owner, group, self.node.me)
        found = self._summing.own(owner, group, stream.next, max(stream.granted, 0), self.node.me)
        found.below = dict.fromkeys(children, found.own)
        super()._sum_up(key, stream, forced=forced)


class Undated(Reliable):
    """Takes sums of another view of the group for those of its own: they are of another tree."""

    def _summed(self, child, word):
        for summed in word.streams:
            summed.stamp = self._stamps.get(summed.group, self._stamp)
        super()._summed(child, word)


FOUND = {
    mutant(tree): found
    for tree, found in {
        Abandoning: (5, "never delivered"),
        Trusting: (1, "still holds"),
        Premature: (5, "never delivered"),
        Easygoing: (11, "never delivered"),
        Talkative: (1, "a second time"),
        Forgetful: (2, "a second time"),
        Selfish: (7, "never delivered"),
        Rash: (16, "still holds"),
        Disinherited: (1, "still holds"),
        Modest: (7, "never delivered"),
        Hoarding: (0, "still holds"),
        Resigned: (2, "never delivered"),
        Unseeing: (0, "never delivered"),
        Blunt: (103, "never delivered"),
        Incurious: (12, "still holds"),
        Spendthrift: (46, "never delivered"),
        Gullible: (62, "never delivered"),
    }.items()
}
"""By mutant: the first seed that finds it, and a part of the sentence."""

CROWD_FOUND = {
    Solitary: (0, "never delivered"),
    Eager: (0, "never delivered"),
    Echoing: (0, "a second time"),
    Clinging: (0, "still points to"),
    Choosy: (17, "can be reached"),
}
"""The same for the crowd, in its own scenario."""

SUMS_FOUND = {
    Presuming: (70, "still waits"),
    Undated: (21, "has room up to"),
}
"""The same for acknowledgements that are summed, under agreed views."""
