"""Doubt: a member that was held up asks whether its view is still that of most members, before it acts on it.

Theory of operation
-------------------
A member that was stopped, or slept, finds in its buffers what came meanwhile: messages, acknowledgements, heartbeats.
None of it says how things are now. The others may have gone on without it, and it would not know before somebody tells
it. So it asks everybody (``StillIn``), and who is in the named view, and takes part in no change of it, says so
(``YesStill``). Only what answers a question that was asked *after* waking counts: each waking asks a new one.

As soon as those who answered, with the member itself, are a quorum of the view, no other quorum can have gone on from
there before they answered: any two share a member, and that one had agreed to nothing else. Then the doubt is over.
What the others do after they have answered is not known; that race is in the nature of an order that does not wait for
anybody (``docs/groups.md`` says what remains, and that ``safe`` excludes it).

Live: the question is repeated until it is answered by enough. If they have gone on, their next view ends the doubt's
view, and in the next primary it is asked about that one: what brings a member into a view may be old, too.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.frame import Frame
from ...core.ports import Timer
from ...core.view import is_quorum
from ...stack.layer import Layer
from .words import Ballot, StillIn, YesStill

REPEAT_S = 0.1


class Doubt:
    """Of one member about its present view. ``over`` is called when a doubt has ended."""

    __slots__ = (
        "_answered",
        "_known",
        "_layer",
        "_members",
        "_over",
        "_question",
        "_repeat",
        "_view",
        "doubts",
        "open",
    )

    def __init__(self, layer: Layer, over: Callable[[], None]) -> None:
        self._layer = layer
        self._over = over
        self._known = 0
        """How often this member was late, as far as it has asked about it."""
        self._members: tuple[int, ...] = ()
        """Of the primary that this member is in; empty outside."""
        self._view: Ballot = (0, 0)
        self._question = 0
        self._answered: set[int] = set()
        self._repeat: Timer | None = None
        self.open = False
        self.doubts = 0

    def look(self) -> None:
        """To be called before this member acts on its view, once a stimulus."""
        times = self._layer.node.waking.look()
        if times != self._known:
            self._known = times
            self.open = True
            self.doubts += 1
            self._ask()

    def entered(self, view: Ballot, members: tuple[int, ...], *, primary: bool) -> None:
        self._view = view
        self._members = members if primary else ()
        if self.open:
            self._ask()

    def _ask(self) -> None:
        self._question += 1
        self._answered = {self._layer.node.me}
        if self._repeat is not None:
            self._repeat.cancel()
            self._repeat = None
        if self._members and not self._enough():
            self._say()

    def _say(self) -> None:
        self._repeat = self._layer.after(REPEAT_S, self._say)
        me = self._layer.node.me
        self._layer.pass_down(Frame(sender=me, headers=[StillIn(self._question, self._view)]))

    def asked(self, member: int, asked: StillIn, *, changing: bool) -> None:
        if asked.view == self._view and member in self._members and not changing:
            me = self._layer.node.me
            self._layer.pass_down(Frame(sender=me, to=member, headers=[YesStill(asked.question)]))

    def answered(self, member: int, answer: YesStill) -> None:
        if self.open and answer.question == self._question and member in self._members:
            self._answered.add(member)
            if self._enough():
                self._over()

    def _enough(self) -> bool:
        """Whether the doubt is over."""
        if not is_quorum(self._answered, self._members):
            return False
        self.open = False
        if self._repeat is not None:
            self._repeat.cancel()
            self._repeat = None
        return True

    def validate(self) -> None:
        assert self.open or self._repeat is None
