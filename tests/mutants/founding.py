"""Founding with one mistake each, such as a programmer makes. Campaigns of the scenario ``founding`` must find them."""

from pluribus.group.acknowledged import Acknowledged
from pluribus.layers.membership import Membership
from pluribus.runtime.group.replica import Replica


class Unlocked(Membership):
    """Founds without asking for the lock of its machine."""

    def _permitted(self, founders):
        self._claimed = True
        return super()._permitted(founders)


class Guest(Membership):
    """Holds the lock only if it founded: whoever joins a primary does not."""

    def _share(self):
        return True


class Fickle(Membership):
    """Lets go of the lock when it is not in the primary any more, although it has what was acknowledged there."""

    def _enter(self):
        super()._enter()
        if not self._primary and self.ports.founding is not None:
            self.ports.founding.release()


class Restless(Membership):
    """Does not listen longer than it takes to hear those who answer at once."""

    _listen_s = 0.0


class Alone(Membership):
    """Asks nobody else how many founders there must be, and forgets how many itself was told."""

    def _joined(self, ballot):
        joined = super()._joined(ballot)
        joined.founders = 1
        return joined

    def _founds(self):
        wanted, self._founders = self._founders, 1
        try:
            return super()._founds()
        finally:
            self._founders = wanted

    def _own_word(self):
        wanted, self._founders = self._founders, 1
        try:
            return super()._own_word()
        finally:
            self._founders = wanted


class Shy(Membership):
    """Asks for the lock once: who did not get it when it started never founds."""

    def _permitted(self, founders):
        if self._told_claim:
            return False
        permitted = super()._permitted(founders)
        self._told_claim = not self._claimed
        return permitted


class Quiet:
    """Does not say which messages were given up with their primary."""

    of = Acknowledged

    def view_changed(self, view):
        return []


class Mute:
    """Does not say which calls were given up with their primary."""

    of = Replica

    def _lost(self):
        self._core.acknowledged.clear()


FOUND = {
    Unlocked: (0, "is lost, although"),
    Guest: (0, "is lost, although"),
    Fickle: (0, "is lost, although"),
    Restless: (26, "is lost, although"),
    Alone: (4, "is lost, although"),
    Shy: (0, "nobody founds"),
    Quiet: (5, "never told"),
    Mute: (5, "never told"),
}
"""By mutant: the seed in which it is found, and words of the sentence that says so."""
