"""State transfer and replicas with one mistake each, such as a programmer makes. Campaigns must find them.

What a mutant defines takes the place of the shipped method of the class that it names first.
"""

import pluribus.layers.membership.attempt as attempt
from pluribus.core.errors import NotPrimary
from pluribus.group.replica import LoggedMachine
from pluribus.group.safelog import SafeLog
from pluribus.group.sessions import Sessions
from pluribus.group.state.line import Seens
from pluribus.group.state.serving import Serving
from pluribus.group.state.transfer import FAR, SURE, UNSURE, Transfer

all_have = attempt._all_have
shipped = {
    (of, name): getattr(of, name)
    for of, name in (
        (Seens, "list"),
        (LoggedMachine, "_answer"),
        (Sessions, "saved"),
        (Transfer, "changed"),
        (Transfer, "_decide"),
        (Transfer, "_enter_ordered"),
    )
}


class Late:
    """Says that a snapshot holds one message more than it does."""

    of = Seens

    def list(self):
        return [(sender, first, stop + 1) for sender, first, stop in shipped[Seens, "list"](self)]


class Early:
    """Takes the snapshot when it is asked for, and not when the reader has come so far."""

    of = Serving

    def _look_for_askers(self):
        if not self._taking and self._asked:
            self._taking = True
            self._read_point = max(want.point for want in self._asked.values())
            self._take_snapshot()


class Twice:
    """Applies what the state that it was given holds already."""

    of = Seens

    def unseen(self, frame):
        return [frame]


class Unaware:
    """Does not expect that the state holds what reaches it only later."""

    of = Transfer

    def _was_ahead(self, frame, ahead):
        return False


class Sure:
    """Comes back from a minority and takes its state for good."""

    of = Transfer

    def changed(self, change):
        if self.has and change.primary:
            self.away, change.continues = False, True
        shipped[Transfer, "changed"](self, change)


class Hasty:
    """Founds the group if nobody has answered yet."""

    of = Transfer

    def _decide(self):
        answers = [rank for rank in self._answers.values() if rank[0] == SURE]
        if not answers and self._pull is None and self.holding and not self.away and self._view.members[0] == self._me:
            self._resolve()
        else:
            shipped[Transfer, "_decide"](self)


class Humble:
    """Of those who were cut off, follows the one that came least far."""

    of = Transfer

    def _enter_ordered(self, change):
        shipped[Transfer, "_enter_ordered"](self, change)
        if self._rank[0] == UNSURE:
            self._rank = (*self._rank[:2], *(FAR - place for place in self._rank[2:5]), *self._rank[5:])


class Mistaken:
    """Gives a caller the result of somebody else's command with the same number."""

    of = LoggedMachine

    def _answer(self, key, entry):
        shipped[LoggedMachine, "_answer"](self, (self.session, key[1]), entry)


class Lazy:
    """Reads without waiting for what was committed before."""

    of = LoggedMachine

    def read(self, ready):
        ready(None)


class Forgetful:
    """Applies a command again when it is asked for again."""

    of = Sessions

    def known(self, command, generation):
        return None


class Discreet:
    """Hands over the state without the table of sessions."""

    of = Sessions

    def saved(self, machine):
        return shipped[Sessions, "saved"](Sessions(), machine)


class Confident:
    """Says of what may have been committed that it was not."""

    of = SafeLog

    def _uncertain(self, numbers):
        for number in numbers:
            submission = self._sent.pop(number)
            self._bytes -= len(submission.encoded)
            submission.done(-1, NotPrimary("it was not sent"))


class Everlasting:
    """Takes an old state for the life that goes on."""

    of = SafeLog

    def _go_on_older(self, change):
        """Nothing changes."""


class Reckless:
    """Goes on in a forced primary with whatever all hold, delivered by somebody or not. A seed that finds it is rare,
    one in several hundred; ``tests/layers/test_primary_forced.py`` finds it at once."""

    replaces = (attempt, "_all_have")

    def __new__(cls, came, new_chain):
        return all_have(came, False)


FOUND = {
    Late: (5, "another command than others"),
    Early: (1, "still has no replica"),
    Twice: (5, "another command than others"),
    Unaware: (72, "another command than others"),
    Sure: (15, "nothing explains"),
    Hasty: (21, "nothing explains"),
    Mistaken: (0, "nothing explains"),
    Lazy: (15, "nothing explains"),
    Forgetful: (3, "and again at"),
    Discreet: (1, "was next"),
    Confident: (10, "nothing explains"),
    Everlasting: (9_100_755, "nothing explains"),
}
"""By mutant: the seed of the scenario ``replica`` in which it is found, and words of the sentence that says so."""
