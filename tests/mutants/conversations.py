"""Conversations with one mistake each, such as a programmer makes. Campaigns must find them."""

from bisect import bisect_right

from pluribus.conversations import history, synchronising
from pluribus.conversations.history import History
from pluribus.conversations.joining import JOINED, Joining
from pluribus.conversations.synchronising import Repository, Synchronising
from pluribus.conversations.words import Leave, add_identity, minus, unpacked
from pluribus.core.intervals import Intervals


class Forgetful(Joining):
    """Forgets a member that left instead of counting that it did: what others remember brings it back."""

    of = Joining

    def leave(self, gid, now):
        group = self._known(gid)
        if group.standing == JOINED:
            self._go("wish to leave")
            group.standing = "refused"
            del group.rows[self.person]
            self.out.append(Leave(gid, self.person, 0))
            self._go("done")


class Hasty(History):
    """Delivers one answer in five before what it answers."""

    of = History

    def add(self, entry, now):
        if entry.id[1] % 5 == 4 and entry.parent is not None and entry.parent not in self and entry.id not in self:
            add_identity(self.have, entry.id)
            self._entries[entry.id] = entry
            self._of.setdefault(entry.id[0], synchronising.deque()).append(entry.id)
            self.bytes += entry.size
            return self._deliver([(entry.id, False)])
        return WHOLE_ADD(self, entry, now)


WHOLE_ADD = History.add


class Hoarding(History):
    """Keeps of a writer with many gaps what came first."""

    of = History

    def _fits(self, entry):
        known = self.have.get(entry.id[0], Intervals())
        return len(known) < history.SPANS_MAX or not {entry.id[1] - 1, entry.id[1] + 1}.isdisjoint(
            number for span in known for number in span
        )


class OffByOne(Intervals):
    """Takes the number behind an interval for one of it."""

    __slots__ = ()
    of = Intervals

    def __contains__(self, number):
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at] + 1


class Silencing(Synchronising):
    """A member without bodies answers all the same, and others believe that it has given what it could not."""

    of = Synchronising

    def _requested(self, asker, request, now):
        lost, self.history.lost = self.history.lost, {}
        WHOLE_REQUESTED(self, asker, request, now)
        self.history.lost = lost
        lacks = minus(self.history.have, unpacked(request.have))
        if self.history.identities_only and lacks:
            self._repositories[(asker, request.part)] = Repository(request.number, lacks, now)
            self._latest[(asker, request.part)] = request.number

    def _answered(self, answer, now):
        WHOLE_ANSWERED(self, answer, now)
        repository = self._repositories.get((answer.asker, answer.part))
        if repository is not None and answer.asker != self.me:
            del self._repositories[(answer.asker, answer.part)]

    def _piece(self, left):
        found = [self.history.get((writer, at)) for writer in left for span in left[writer] for at in range(*span)]
        left.clear()
        return [entry for entry in found if entry is not None]


WHOLE_REQUESTED, WHOLE_ANSWERED = Synchronising._requested, Synchronising._answered


FOUND = {
    # The seed of the campaign that finds it, and what it finds. `python -m tests.mutants` hunts for new ones.
    Hasty: (0, "before its parent"),
    OffByOne: (0, "does not know 1 messages"),
}
IN_THE_HALL = (Forgetful, Silencing, Hoarding)
"""Found by the stories of ``tests/conversations``, which need no seed."""
