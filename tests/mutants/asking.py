"""Questions with one mistake each, such as a programmer makes. Campaigns of the scenario ``asks`` must find them."""

from pluribus.group import asking, channel
from pluribus.group.asking import Asking, Pending
from pluribus.group.dispatch import Dispatch
from pluribus.layers.reliable import streams
from pluribus.layers.reliable.confirming import Confirming


class Loyal(Asking):
    """Goes on waiting for members that are gone."""

    replaces = (channel, "Asking")

    def members_changed(self, members, unsent):
        super().members_changed({*members, *(m for p in self.pending.values() for m in p.asked)}, unsent)


class Welcoming(Asking):
    """Waits also for members that came after the question."""

    replaces = (channel, "Asking")

    def members_changed(self, members, unsent):
        for pending in self.pending.values():
            if pending.placed:
                pending.asked |= frozenset(members)
        super().members_changed(members, unsent)


class Prompt(Asking):
    """Takes the members of the moment for those who will deliver the question."""

    replaces = (channel, "Asking")

    def begin(self, question, *args):
        pending = super().begin(question, *args)
        pending.placed = True
        return pending


class Gullible(Asking):
    """Takes the last answer of a member for its answer."""

    replaces = (channel, "Asking")

    def answered(self, sender, word):
        pending = self.pending.get(word.question)
        if pending is not None:
            pending.answers.pop(sender, None)
        super().answered(sender, word)


class Populist(Pending):
    """Counts a majority of those who are left."""

    replaces = (asking, "Pending")
    __slots__ = ()

    @property
    def need(self):
        return len(self.asked - self.gone) // 2 + 1 if self.replies == "majority" else super().need


class Tolerant(Pending):
    """Counts errors as good answers."""

    replaces = (asking, "Pending")
    __slots__ = ()

    def settle(self):
        if self.replies != "all" and self.placed and len(self.answers) >= self.need:
            self._done(self.so_far())
            return True
        return super().settle()


class Boastful(Confirming):
    """Tells that everybody has what somebody has."""

    replaces = (streams, "Confirming")
    __slots__ = ()

    def look(self, outgoing, members):
        confirmed, hasten = super().look(outgoing, members)
        for key in self.wanted:
            out = outgoing.get(key)
            if out is not None and len(out.acked) > 1:
                confirmed.append((key, sorted(out.acked.values())[-2]))
        return confirmed, hasten


class Rash:
    """Joins a group again that it has just left, before that was noticed."""

    of = Dispatch

    def _still_in(self, number):
        return False


FOUND = {
    Rash: (47, "has not delivered"),
    Loyal: (1, "waited in vain"),
    Welcoming: (1, "waited in vain"),
    Prompt: (7, "could still answer"),
    Gullible: (0, "is said to have answered"),
    Populist: (0, "good answers"),
    Tolerant: (0, "good answers"),
    Boastful: (11, "has not delivered"),
}
"""By mutant: the seed in which it is found, and words of the sentence that says so."""
