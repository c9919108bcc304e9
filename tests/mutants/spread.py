"""The tree with one mistake each, such as a programmer makes. The campaign must find them."""

from pluribus.layers.spread import Spread
from pluribus.layers.spread.inheriting import Tree
from pluribus.layers.spread.streams import ROOT


def mutant(tree: type[Tree]) -> type[Spread]:
    return type(tree.__name__, (Spread,), {"tree_type": tree, "__doc__": tree.__doc__})


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


FOUND = {
    mutant(tree): found
    for tree, found in {
        Abandoning: (5, "never delivered"),
        Trusting: (1, "still holds"),
        Premature: (5, "never delivered"),
        Easygoing: (5, "never delivered"),
        Talkative: (1, "a second time"),
        Forgetful: (2, "a second time"),
        Selfish: (2, "still holds"),
        Rash: (5, "never delivered"),
        Disinherited: (1, "still holds"),
        Modest: (14, "never delivered"),
        Hoarding: (0, "still holds"),
        Resigned: (2, "never delivered"),
        Unseeing: (0, "never delivered"),
        Blunt: (128, "never delivered"),
    }.items()
}
"""By mutant: the first seed that finds it, and a part of the sentence."""
