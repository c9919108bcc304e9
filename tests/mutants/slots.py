"""Software buses with one mistake each, such as a programmer makes. Campaigns of the scenario ``slots`` find them."""

import msgspec

from pluribus.slots.inbox import InboxMemory
from pluribus.slots.map import BusMap
from pluribus.slots.occupant import Occupant
from pluribus.slots.outbox import OpenLeg
from pluribus.slots.routes import STALE, RouteTable
from pluribus.slots.words import SendData


class Countless:
    """Counts the occupants of connected slots, and nothing for a slot that is empty."""

    of = BusMap

    def legs(self, source, only=()):
        return tuple(leg for leg in legs(self, source, only) if leg.tickets)


class Repetitious:
    """Sends a message again to all, as a new one."""

    of = Occupant

    def _say(self, to, word):
        if isinstance(word, SendData) and word.wanted is not None:
            again = (word.id[0], word.id[1] + 1_000_000)
            word = msgspec.structs.replace(word, id=again, wanted=None)
        say(self, to, word)


class Forgetful:
    """Does not remember what it has acknowledged."""

    of = InboxMemory

    def done(self, id, port):
        return None


class Untidy:
    """Forgets a dependent route when the last occupant of a slot leaves."""

    of = BusMap

    def dependent(self, slot):
        return dependent(self, slot)[1:]


class Complacent:
    """Accepts by a routing table that is older than what the sender knows."""

    of = RouteTable

    def targets(self, data, slot):
        return targets(self, msgspec.structs.replace(data, version=(0, 0)), slot)


class Gullible:
    """Accepts a ticket that it was told to be stale."""

    of = RouteTable

    def targets(self, data, slot):
        found = targets(self, data, slot)
        if found is STALE:
            return tuple(leg for leg in self._entries[data.source] if leg.target.slot == slot)
        return found


class Hasty:
    """Acknowledges a message before the application has it."""

    of = Occupant

    def _accept(self, sender, data, leg, now):
        before = len(self.inbox.get(leg.target.port, ()))
        accept(self, sender, data, leg, now)
        waiting = self.inbox.get(leg.target.port, ())
        if len(waiting) > before and not data.asks:
            arrived = waiting[-1]
            self.acknowledge(arrived)
            self.memory.hold(arrived.id, arrived.target.port)
            self._held[arrived.source, arrived.target.port] += 1


class Satisfied:
    """Calls a message done at the first acknowledgement of a connection."""

    of = OpenLeg

    def recount(self, tickets, known):
        self.need = set()


class Counting:
    """Counts tickets: a primary that is forced to go on with an older map issues numbers a second time."""

    of = BusMap

    def _ticket(self, wish):
        self.issued += 1
        return self.epoch * 1_000 + self.issued


legs, say, dependent, targets, accept = (
    BusMap.legs,
    Occupant._say,
    BusMap.dependent,
    RouteTable.targets,
    Occupant._accept,
)

FOUND = {
    Countless: (0, "has acknowledged it"),
    Repetitious: (0, "neither done nor expired"),
    Forgetful: (0, "again"),
    Untidy: (1, "is still there"),
    Complacent: (0, "the message knew"),
    Gullible: (20, "stale"),
    Hasty: (0, "which did not"),
    Satisfied: (1, "was not waited for"),
}

FOUND_WITHOUT_ROUTER = {
    Counting: (564, "which did not"),
}
