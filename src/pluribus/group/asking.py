"""Asking: a message to a group that awaits answers, and the members that are still expected to give one.

Theory of operation
-------------------
A question is a message like any other: it is numbered, ordered and delivered as the group promises. Answers come back
to the asker alone, on its direct streams, and never reach an inbox.

*Who is asked.* The members of the view in which the question is delivered. A question may leave in one view and be
delivered in the next. So until the asker gets its own question back, the members of its latest view count as asked.
When the question comes back it has its *place*, and from then on members can only drop out. Views are synchronous, so
every member that passes from that view to the next with the asker has delivered the question too. An asker that does
not hear itself, in a group without order, takes the view in which the question left; there it is the same view.

*When it ends.* ``all``: every member that was asked has answered or is gone. ``n`` and ``majority``: so many good
answers are there; or too few members are left that may answer, which is an error at once. A majority is more than half
of the members that were asked, whether they are still there or not; so two majorities of one view share a member. An
error counts as an answer for ``all``, and not otherwise. Members that say that they do not answer such questions (they
serve no object) are not counted.

Live: an answer, a departure or the caller's time-out ends every question. Bounded: ``QUESTIONS_MAX`` questions, each
with one answer a member. Answers that come late or twice are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, ClassVar

import msgspec

from ..core.errors import (
    BadInput,
    MalformedFrame,
    NoMembers,
    Overflow,
    PluribusError,
    RemoteError,
    Unanswered,
    Uncertain,
)
from ..core.frame import Frame, Message
from ..core.ids import MemberId, MessageId
from ..core.limits import QUESTIONS_MAX
from ..wire.questions import ABSENT, FAILED, Answered, unwrapped, words_of

Replies = int | str
"""How many answers: ``"one"``, ``"majority"``, ``"all"``, or a number."""


class Answer(msgspec.Struct, frozen=True):
    """What one member answered: ``body``, or ``error`` if its handler raised one."""

    sender: MemberId
    value: Any = None
    error: RemoteError | None = None

    @property
    def body(self) -> Any:
        """The answer; raises ``RemoteError`` if there is none."""
        if self.error is not None:
            raise self.error
        return self.value


class Answers(list[Answer]):
    """Answers in the order in which they came; ``left`` are members that went away and did not answer."""

    left: tuple[MemberId, ...] = ()


class Question(Message, gc=True):
    """A message whose sender awaits an answer."""

    number: int = 0
    """The number of the question; the message has another."""
    answer: Callable[[Question, Any], Any] | None = None
    answered: bool = False

    asks: ClassVar[bool] = True

    def reply(self, body: Any) -> Any:
        """Send the answer to the asker alone; ``await`` it. A question is answered once: again raises ``BadInput``."""
        assert self.answer is not None, "a question is made with the way to answer it"
        return self.answer(self, body)


def checked_replies(replies: Replies) -> Replies:
    """``replies`` as a number, ``majority`` or ``all``; ``BadInput`` for anything else."""
    if replies == "one":
        return 1
    if replies in ("majority", "all") or (type(replies) is int and replies > 0):
        return replies
    raise BadInput(f"replies={replies!r} is no number of answers: use 'one', 'majority', 'all', or 1 or more")


class Pending:
    """One question that awaits answers."""

    __slots__ = ("_done", "absent", "answers", "asked", "gone", "group", "of", "placed", "replies", "sent")

    def __init__(
        self,
        group: str,
        replies: Replies,
        asked: frozenset[int],
        of: frozenset[int],
        done: Callable[[Answers | PluribusError], None],
    ) -> None:
        self.group = group
        self.replies = replies
        self.asked = asked
        self.of = of
        """Only these are to answer; empty: everybody."""
        self.placed = False
        self.sent: int | None = None
        """The number of its message, once it is known."""
        self.answers: dict[int, Answer] = {}
        self.absent: set[int] = set()
        self.gone: set[int] = set()
        self._done = done

    @property
    def waiting(self) -> frozenset[int]:
        """The members that may still answer."""
        return self.asked - self.gone - self.absent - self.answers.keys()

    @property
    def need(self) -> int:
        """How many good answers end it; without meaning for ``all``."""
        if isinstance(self.replies, int):
            return self.replies
        return len(self.asked - self.absent) // 2 + 1 if self.replies == "majority" else 1

    def settle(self) -> bool:
        """Tell the asker if the question is over; true if it is."""
        good = [answer for answer in self.answers.values() if answer.error is None]
        need, waiting = self.need, self.waiting
        if self.replies == "all":
            if not self.placed or waiting:
                return False
            self._done(self._answers(self.answers.values()) if self.answers else self._too_few())
        elif len(good) >= need and (self.placed or self.replies != "majority"):
            self._done(self._answers(good))
        elif self.placed and len(good) + len(waiting) < need:
            self._done(self._too_few())
        else:
            return False
        return True

    def so_far(self) -> Answers:
        return self._answers(self.answers.values())

    def give_up(self, error: PluribusError) -> None:
        self._done(error)

    def _answers(self, answers: Iterable[Answer]) -> Answers:
        found = Answers(answers)
        found.left = tuple(MemberId(member) for member in sorted(self.gone - self.answers.keys()))
        return found

    def _too_few(self) -> PluribusError:
        wanted = "an answer" if self.need == 1 else f"{self.need} answers"
        answered = len(self.answers)
        if answered + len(self.waiting) >= self.need:
            failed = next(answer.error for answer in self.answers.values() if answer.error is not None)
            text = f"{wanted} of {self.group!r} cannot come any more: members raised errors, the first was {failed}"
            return Unanswered(text, self.so_far())
        return NoMembers(
            f"{wanted} of {self.group!r} cannot come any more: {len(self.gone)} of {len(self.asked)} members that were "
            f"asked are gone and {len(self.absent)} answer nothing; ask for fewer, or wait_for() members",
            self.so_far(),
        )


class Asking:
    """The questions of one member in one group."""

    def __init__(self, group: str, me: int, *, own: bool, echoes: bool) -> None:
        self.pending: dict[int, Pending] = {}
        self.asked = 0
        self.late = 0
        self.duplicates = 0
        self.malformed = 0
        self._group = group
        self._me = me
        self._own = own
        self._echoes = echoes
        """Whether this member's own messages come back through the stack, even if the program does not want them."""
        self._heard = 0

    def begin(
        self,
        question: int,
        members: Collection[int],
        replies: Replies,
        of: Collection[int],
        done: Callable[[Answers | PluribusError], None],
    ) -> Pending:
        """Await answers to a question that is about to be sent; raise at once if there cannot be enough of them."""
        if len(self.pending) >= QUESTIONS_MAX:
            raise Overflow(f"{QUESTIONS_MAX} questions to {self._group!r} await their answers: await some of them")
        pending = Pending(self._group, replies, self._expected(members, frozenset(of)), frozenset(of), done)
        there = len(pending.asked)
        if there < max(pending.need, 1):
            raise NoMembers(
                f"{pending.need} answers of {self._group!r} cannot come: {there} members could give one; "
                "ask for fewer, or wait_for() members"
            )
        self.pending[question] = pending
        self.asked += 1
        return pending

    def forget(self, question: int) -> None:
        """The asker waits no longer; answers that come now are late."""
        self.pending.pop(question, None)

    def heard(self, frame: Frame, members: Collection[int]) -> None:
        """A frame with own questions came back: they are delivered now, to these."""
        try:
            words = words_of(frame)
        except MalformedFrame:
            return
        for word in words:
            pending = self.pending.get(word.question)
            if pending is not None:
                self._place(word.question, pending, members)

    def heard_upto(self, number: int, members: Collection[int]) -> None:
        """Like ``heard``, for groups in which this member's own messages are dropped undecoded."""
        self._heard = number
        for question, pending in list(self.pending.items()):
            if not pending.placed and pending.sent is not None and pending.sent < number:
                self._place(question, pending, members)

    def answers(self, frame: Frame) -> None:
        """A frame with answers came."""
        try:
            words = words_of(frame)
        except MalformedFrame:
            self.malformed += frame.count
            return
        for word in words:
            self.answered(frame.sender, word)

    def answered(self, sender: int, word: Answered) -> None:
        pending = self.pending.get(word.question)
        if pending is None:
            self.late += 1
            return
        if sender in pending.answers or sender in pending.absent:
            self.duplicates += 1
            return
        if word.outcome == ABSENT:
            pending.absent.add(sender)
        else:
            try:
                pending.answers[sender] = _answer(sender, word)
            except MalformedFrame:
                self.malformed += 1
                return
        pending.placed = pending.placed or not self._echoes
        self._settle(word.question, pending)

    def members_changed(self, members: Collection[int], unsent: int) -> None:
        """The group has these members now; ``unsent`` is the number of the first message that has not left."""
        for question, pending in list(self.pending.items()):
            if not self._echoes and pending.sent is not None and pending.sent < unsent:
                pending.placed = True  # in the view before
            if pending.placed:
                pending.gone |= pending.asked.difference(members)
            else:
                pending.asked = self._expected(members, pending.of)
            self._settle(question, pending)

    def left(self, members: Collection[int]) -> None:
        """These members are back, and have not heard questions that were asked while they were away."""
        for question, pending in list(self.pending.items()):
            if pending.placed:
                pending.gone |= pending.asked.intersection(members)
                self._settle(question, pending)

    def sent(self, question: int, number: int, members: Collection[int]) -> None:
        """The question was admitted as this message."""
        pending = self.pending.get(question)
        if pending is not None and not pending.placed:
            pending.sent = number
            if number < self._heard:
                self._place(question, pending, members)

    def place(self, question: int) -> None:
        """The question goes to one member alone, which is there."""
        self.pending[question].placed = True

    def dropped(self, ids: Collection[MessageId]) -> None:
        """This member was cut off, and does not know what became of these messages of its own."""
        lost = {number for sender, number in ids if sender == self._me}
        for question, pending in [found for found in self.pending.items() if found[1].sent in lost]:
            self.forget(question)
            text = (
                f"a question to {self._group!r} was under way when this member was cut off: ask again if that is safe"
            )
            pending.give_up(Uncertain(text, (self._me, pending.sent or 0)))

    def close(self, error: PluribusError) -> None:
        """The group is left: nobody will answer."""
        pending, self.pending = self.pending, {}
        for question in pending.values():
            question.give_up(error)

    def validate(self) -> None:
        assert len(self.pending) <= QUESTIONS_MAX
        for pending in self.pending.values():
            assert not (pending.absent & pending.answers.keys()), "a member that answers is not absent"
            assert pending.placed or not pending.gone, "nobody has gone from a question that has no place"
            assert not pending.placed or pending.waiting or pending.replies != "all", "it is over"

    def _place(self, question: int, pending: Pending, members: Collection[int]) -> None:
        if not pending.placed:
            pending.asked = self._expected(members, pending.of)
            pending.placed = True
            self._settle(question, pending)

    def _settle(self, question: int, pending: Pending) -> None:
        if pending.settle():
            self.pending.pop(question, None)

    def _expected(self, members: Collection[int], of: frozenset[int]) -> frozenset[int]:
        expected = frozenset(members) if self._own else frozenset(members) - {self._me}
        return expected & of if of else expected


def _answer(sender: int, word: Answered) -> Answer:
    body = unwrapped(word.body)
    if word.outcome != FAILED:
        return Answer(MemberId(sender), body)
    kind, text = body if isinstance(body, list) and len(body) == 2 else ("Exception", str(body))
    return Answer(MemberId(sender), error=RemoteError(f"{kind}: {text} (at {MemberId(sender)!r})", str(kind)))
