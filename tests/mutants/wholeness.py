"""Protocols with one mistake each that all members make alike, or that only those above them feel. Campaigns must find
them."""

from pluribus.group.channel import Channel
from pluribus.layers.membership import primary
from pluribus.layers.total import Total

shipped = {"members_changed": Channel.members_changed}


class Frugal(Total):
    """Drops, of what has no place yet when its sender dies, the first message, and delivers those behind it."""

    def _view_changed(self, view):
        self._gone = set(self._members) - set(view.members)
        return super()._view_changed(view)

    def _deliver_unordered(self):
        for (sender, _), held in self._held.items():
            if sender in self._gone and len(held) > 1:
                held.popleft()
        super()._deliver_unordered()


class Tidy:
    """Throws away what is unread of a member that is gone."""

    of = Channel

    def members_changed(self, members, *args, **options):
        for frame in [frame for frame in self.inbox if frame.sender not in (0, *members)]:
            self.inbox.remove(frame)
        shipped["members_changed"](self, members, *args, **options)


class Unanimous:
    """Goes on as the primary only with all of its members."""

    replaces = (primary, "is_quorum")

    def __new__(cls, here, link, left=()):
        return set(link.members) <= {*here, *left}


FOUND = {
    Frugal: (63, "without"),
    Tidy: (1, "was next"),
    Unanimous: (0, "none has followed it"),
}
"""By mutant: the seed in which it is found, and words of the sentence that says so."""
