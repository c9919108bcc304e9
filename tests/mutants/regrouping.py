"""Groups that change inside a view, with one mistake each. Campaigns must find them."""

from pluribus.layers.membership import Membership
from pluribus.layers.reliable import Reliable
from pluribus.layers.total import Total
from pluribus.stack.events import GroupBlocked


class Abrupt(Membership):
    """Tells where its stream ends before everybody has it, and shows a group's new view without having everything of
    the old one."""

    def _tell_ends(self, begun):
        super()._tell_ends(begun)
        ending, self._ending = self._ending, {}
        self._cast_ends([change for changes in ending.values() for change in changes])

    def _progress(self, change):
        announced = self._announced.get((change.number, change.roster.group), {})
        if not change.reaching and all(member in announced for member in change.participants):
            change.reaching = True
            self._show_change(change)


class Unblocked(Membership):
    """Tells the others where its stream ends, and goes on sending there."""

    def _tell_ends(self, begun):
        super()._tell_ends(begun)
        for change in begun:
            self.tell_up(GroupBlocked(change.roster.group, False))


class Stampless(Reliable):
    """Takes frames of a group's later view for frames of the present one."""

    def _receive(self, frame, data):
        stamp = self._stamps.get(frame.group, self._stamp)
        if data.stamp > stamp and frame.group and data.stamp >> 18 == stamp >> 18:
            data.stamp = stamp
        super()._receive(frame, data)


class Ahead(Total):
    """Shows a group's new view before it has delivered the last message of the old one."""

    def _show_deferred(self, group):
        for event in self._deferred.pop(group, ()):
            self._show(event)
        self._let_go(group)


FOUND = {
    Abrupt: (18, "left view"),
    Unblocked: (25, "only one delivered"),
    Stampless: (4, "left view"),
    Ahead: (26, "where"),
}
"""By mutant: the seed in which it is found, and words of the sentence that says so."""
