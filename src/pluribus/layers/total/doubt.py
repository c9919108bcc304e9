"""Doubt: a member that was held up asks whether its view is still that of most members, before it acts on it.

Theory of operation
-------------------
A member that was stopped, or slept, finds in its buffers what came meanwhile: messages, acknowledgements, heartbeats.
None of it says how things are now. The others may have gone on without it. So the member is in *doubt*: it asks
everybody (``StillIn``), and each member that is in the named view, and takes part in no change of it, answers
(``YesStill``). Only answers to a question that was asked *after* waking count: each waking asks a new question.

When the members that answered, with the asking member, are a quorum of the view, no other quorum can have gone on
before they answered: any two quorums share a member, and that member had agreed to nothing else. Then the doubt is
over. What the others do after they have answered is not known. That race remains in every order that does not wait for
everybody (``docs/groups.md`` says what follows, and that ``safe`` excludes it).

Live: the question is repeated until enough have answered. If the others have gone on, their next view ends this view.
In the next primary the member asks again, because the messages that brought it there may be old, too.
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
    """One member's doubt about its present view. ``over`` is called when a doubt has ended."""

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
        """How often this member was held up, as far as it has asked about it."""
        self._members: tuple[int, ...] = ()
        """The members of the primary in which this member is; empty outside of one."""
        self._view: Ballot = (0, 0)
        self._question = 0
        self._answered: set[int] = set()
        self._repeat: Timer | None = None
        self.open = False
        self.doubts = 0

    def look(self) -> None:
        """Called before this member acts on its view, once a stimulus."""
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
        """End the doubt if enough members have answered; true if so."""
        if not is_quorum(self._answered, self._members):
            return False
        self.open = False
        if self._repeat is not None:
            self._repeat.cancel()
            self._repeat = None
        return True

    def validate(self) -> None:
        assert self.open or self._repeat is None
