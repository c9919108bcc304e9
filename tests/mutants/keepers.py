"""The keepers' log with one mistake each, such as a programmer makes. Campaigns must find them."""

from zlib import crc32

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
    """Set its broken store aside, and votes at once, as if it had lost nothing. Found by a story: test_disks.py."""

    replaces = (shipped, "Ledger")

    def set_aside(self):
        broken = self.broken
        super().set_aside()
        if broken and not self.broken:
            self._write_meta(health=WHOLE)


class Namesake(Ledger):
    """Comes back under its old name when its disk was lost: it may vote twice, and for a log that lacks what it had."""

    replaces = (shipped, "Ledger")

    def __init__(self, store, name, random, report):
        super().__init__(store, name, SameEveryTime(store), report)


class SameEveryTime:
    """The chance of one disk's host."""

    def __init__(self, store):
        self.number = crc32(store._gate.__self__.name.encode())

    def getrandbits(self, bits):
        return self.number


class Trusting(Leader):
    """Takes away any vote that it is asked to, whoever of the others answers."""

    replaces = (shipped, "Leader")

    def _answers(self, keeper):
        return True


class Careless:
    """Forces the keeper to go on whose log ends first."""

    replaces = (scenario, "most_recent")

    def __new__(cls, roll, wanted=""):
        return min(roll, key=lambda one: (one.last_epoch, one.end))


class Loyal(Ledger):
    """Votes by the old list when it has adopted a log that was forced. Found by a story: test_voting.py."""

    replaces = (shipped, "Ledger")

    def adopt(self, cluster, epoch):
        self._write_meta(cluster=cluster, epoch=max(epoch, self.epoch), voted=0)


FOUND = {
    # The seed that finds the mutant, and what it finds. Counting, Loyal and Reborn are found by stories, in
    # test_older_rows.py, test_voting.py and test_disks.py.
    Hasty: (6, "a client still waits"),
    Oblivious: (1, "both led epoch"),
    Reckless: (8, "keepers differ"),
    Repeating: (0, "was done at"),
    Generous: (1, "keepers differ"),
    Stale: (7, "was answered before it was called"),
    Blind: (3, "AssertionError: commands"),
    Namesake: (96, "a client still waits"),
    Trusting: (0, "a client still waits"),
    Careless: (2, "the one that was forced has"),
}
