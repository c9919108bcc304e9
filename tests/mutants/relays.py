"""Relays of open groups, and the streams they send on, with one mistake each. Campaigns must find them."""

from pluribus.group.relay import Relay
from pluribus.layers.reliable import Reliable


class Repetitive:
    """Reads what a relay forwards, whether it has it from another one or not."""

    of = Relay

    def _take(self, frame, header):
        self._read(frame, header)


class Lonely:
    """Counts from where it is itself, and does not hear where the others are."""

    of = Relay

    def _stands(self, member, standing):
        if member == self._me:
            self._members, members = frozenset({member}), self._members
            whole["_stands"](self, member, standing)
            self._members = members


class Hopeful:
    """Tells a sender that everybody has what it has only just sent."""

    of = Relay

    def _settled(self, sender, source):
        return max(source.taken, whole["_settled"](self, sender, source))


class Detached:
    """Goes on to answer senders when the group has lost its primary."""

    of = Relay

    def cut_off(self):
        pass


class Distracted(Reliable):
    """Does not hear what it said itself just before the view began to change."""

    def _freeze(self):
        hear, self._hear_self = self._hear_self, lambda: None
        super()._freeze()
        self._hear_self = hear


whole = {name: getattr(Relay, name) for name in ("_stands", "_settled")}

FOUND = {
    Repetitive: (2, "of the same sender from outside"),
    Lonely: (1, "but only one delivered"),
    Hopeful: (7, "was said to have"),
    Detached: (31_000_008, "was said to have"),
    Distracted: (29, "but only one delivered"),
}
"""By mutant: the seed in which it is found, and words of the sentence that says so."""
