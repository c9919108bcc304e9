"""Views, streams and total order with one mistake each, such as a programmer makes. Campaigns must find them."""

import msgspec

from pluribus.core.ids import ALL
from pluribus.layers.membership import Membership
from pluribus.layers.membership.attempt import Attempt
from pluribus.layers.membership.words import Joined, Link
from pluribus.layers.reliable import Reliable
from pluribus.layers.total import Total


class Hurried(Reliable):
    """Passes a frame up although one before it is missing."""

    def _receive(self, frame, data):
        stream = self._in.get((frame.sender, frame.group, frame.to))
        if stream is not None and frame.to == ALL and frame.first > stream.next and not self._frozen:
            stream.next = frame.first
            stream.known = max(stream.known, frame.first)
        super()._receive(frame, data)


class Deaf(Reliable):
    """Never finds out that the last message of a stream was lost."""

    def _told(self, sender, sent, *, quiet):
        """The status is not listened to."""


class Frivolous(Reliable):
    """Goes on passing frames up while the view changes."""

    def _freeze(self):
        """Nothing is frozen."""


class Absent(Membership):
    """Leaves its last stream out when it tells how far it is."""

    def _joined(self, ballot):
        joined: Joined = super()._joined(ballot)
        joined.progress = joined.progress[:-1]
        return joined


class Double(Membership):
    """Shows every view twice."""

    def _show_view(self, view, **flags):
        super()._show_view(view, **flags)
        super()._show_view(view, **flags)


class Vain(Membership):
    """Takes every view for a primary."""

    def _answered(self):
        plain = Attempt.propose

        def propose(attempt, *args, **options):
            proposal = plain(attempt, *args, **options)
            if proposal.link is None:
                link = Link(7, attempt.ballot[0], attempt.ballot, tuple(proposal.members))
                attempt.proposal = proposal = msgspec.structs.replace(proposal, link=link)
            return proposal

        Attempt.propose = propose
        try:
            super()._answered()
        finally:
            Attempt.propose = plain


class Selfish(Total):
    """Delivers its own messages at once, whatever the order."""

    def up(self, frame):
        if frame.sender == self.node.me and frame.group in self._groups and frame.to == ALL and not self._held:
            self.pass_up(frame)
            return
        super().up(frame)


class Trusting(Total):
    """Takes everything for safe."""

    def _is_safe(self, entry, number):
        return True


class Proud(Total):
    """Finishes what it holds although the primary has gone on without it."""

    def _finish(self, upto, *, everything):
        return super()._finish(upto, everything=True)


class Tactful(Total):
    """Does not tell its member what of its own it dropped."""

    def _drop_all(self):
        super()._drop_all()
        return []


class Polite(Membership):
    """Tells nobody that the primary went on without it."""

    def _show_view(self, view, **flags):
        super()._show_view(view, **flags | {"excluded": False})


FOUND = {
    Hurried: (1, "delivered"),
    Deaf: (1, "never"),
    Frivolous: (15, "left view"),
    Absent: (5, "left view"),
    Double: (0, "after view"),
    Vain: (3, "no majority"),
    Selfish: (1, "where"),
    Trusting: (40, "came from primary"),
    Proud: (1, "where"),
    Tactful: (2, "never learned"),
    Polite: (1, "was not told"),
}
"""By mutant: the seed in which it is found, and words of the sentence that says so."""
