"""The keepers' log with one mistake each, such as a programmer makes. Campaigns must find them."""

import msgspec

from pluribus.group.keepers import keeper as shipped
from pluribus.group.keepers.follower import Follower
from pluribus.group.keepers.leader import Leader
from pluribus.group.keepers.ledger import Ledger
from pluribus.group.keepers.words import WHOLE
from pluribus.group.once import DONE, Identified, OnceMachine, Outcome
from pluribus.sim.scenarios import keepers as scenario


class Hasty(Follower):
    """Acknowledges rows before they are on disk."""

    replaces = (shipped, "Follower")

    def _upto(self):
        return min(self._matched, self._seat.ledger.end, self._first_damaged())


class Oblivious(Ledger):
    """Keeps its promises in memory."""

    replaces = (shipped, "Ledger")

    def promise(self, epoch, voted, then=None):
        self.meta = msgspec.structs.replace(self.meta, epoch=epoch, voted=voted)
        self.promised = epoch
        if then is not None:
            then()


class Reckless(Ledger):
    """Votes although its log is damaged."""

    replaces = (shipped, "Ledger")
    may_vote = True


class Counting(Leader):
    """Commits rows of older epochs because most voters have them."""

    replaces = (shipped, "Leader")

    def _countable(self, commit):
        return True


class Repeating(OnceMachine):
    """Does what it is asked as often as it is asked."""

    replaces = (scenario, "OnceMachine")

    def apply(self, index, command):
        asked = msgspec.msgpack.decode(command, type=Identified)
        result = self.machine.apply(index, asked.command)
        return msgspec.msgpack.encode(Outcome(DONE, asked.sequence + 1, result))


class Generous(Leader):
    """Counts a keeper although it says that its log is damaged."""

    replaces = (shipped, "Leader")

    def held(self, sender, word):
        super().held(sender, msgspec.structs.replace(word, health=WHOLE))


class Stale(Leader):
    """Answers reads without asking whether it still leads."""

    replaces = (shipped, "Leader")

    def _heard_from(self, keeper):
        return self._serial + 1


class Blind(Follower):
    """Takes rows without looking whether those before them agree."""

    replaces = (shipped, "Follower")

    def _missing(self, word):
        ledger = self._seat.ledger
        return ledger.end if word.at > ledger.end else None


class Reborn(Ledger):
    """Set its broken store aside, and votes at once, as if it had lost nothing."""

    replaces = (shipped, "Ledger")

    def set_aside(self):
        broken = self.broken
        super().set_aside()
        if broken and not self.broken:
            self._write_meta(health=WHOLE)


FOUND = {
    # The seed that finds the mutant, and what it finds. Counting is found by a story: test_older_rows.py.
    Hasty: (3, "a client still waits"),
    Oblivious: (6, "both led epoch"),
    Reckless: (13, "is committed, and there is another"),
    Repeating: (3, "was done at"),
    Generous: (0, "keepers differ"),
    Stale: (1, "was answered before it was called"),
    Blind: (3, "AssertionError: commands"),
}
