"""Inquiry: members report their statistics to any process that asks. The asker joins nothing.

Theory of operation
-------------------
A question goes to everybody on the bus's medium. Every member answers the asker alone with the counts of its layers, a
text from the runtime, cut into parts that fit a datagram on any path. The asker joins the parts; if one is lost, it
asks again.

The asker (``Inquirer``) is no member: it sends no beats and is in no view, so looking at a bus changes nothing there.
On a bus with a secret it proves the secret like a member, because ``secure`` is below. On a bus without one, any
process that can send a datagram to a member can ask it; such a process could also join.

The runtime makes the text: an engine's statistics are no function of the stack's stimuli, so a trace of the run must
hold the text itself.

Bounded: ``ANSWERS_PER_S_MAX`` answers, so that questions with a forged sender cannot make members flood it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from ..core.frame import Frame, Header, Number
from ..core.limits import FRAME_OVERHEAD_BYTES, PEERS_MAX
from ..stack.events import Event, Inform, Inquired, Introduced, Visitor
from ..stack.layer import Layer

ANSWERS_PER_S_MAX = 20
PARTS_MAX = 64
PART_BYTES_MIN = 256

Part = Annotated[int, msgspec.Meta(ge=0, le=PARTS_MAX)]


class Inquire(Header, tag=9):
    """How are you? The number comes back with the answer."""

    question: Number


class Report(Header, tag=13):
    """A part of the answer."""

    question: Number
    part: Part
    parts: Part
    content: bytes


class Inquiry(Layer):
    """says how this member is, to any program that asks"""

    name = "inquiry"
    requires = frozenset({"datagrams"})
    headers = (Inquire, Report)
    selective = True

    def __init__(self) -> None:
        self._since = 0.0
        self._lately = 0
        self.answered = 0
        self.unanswered = 0

    def up(self, frame: Frame) -> None:
        header = frame.headers[-1] if frame.headers else None
        if type(header) is Inquire:
            self._asked(frame.sender, header.question)
        elif type(header) is not Report:  # an answer to somebody who had our identity before: there is nobody
            self.pass_up(frame)

    def _asked(self, member: int, question: int) -> None:
        now = self.ports.clock.now()
        if now - self._since >= 1:
            self._since, self._lately = now, 0
        if self._lately >= ANSWERS_PER_S_MAX:
            self.unanswered += 1
            return
        self._lately += 1
        self.tell_down(Visitor(member))
        self.tell_up(Inquired(member, question))

    def event_down(self, event: Event) -> None:
        if not isinstance(event, Inform):
            self.tell_down(event)
            return
        step = max(self.ports.engine.path_bytes - FRAME_OVERHEAD_BYTES, PART_BYTES_MIN)
        contents = [event.report[at : at + step] for at in range(0, len(event.report), step)]
        if len(contents) > PARTS_MAX:
            self.unanswered += 1
            return
        self.answered += 1
        for part, content in enumerate(contents):
            report = Report(event.question, part, len(contents), content)
            self.pass_down(Frame(sender=self.node.me, to=event.member, headers=[report]))

    def stats(self) -> dict[str, Any]:
        return {"answered": self.answered, "unanswered": self.unanswered}

    def validate(self) -> None:
        assert 0 <= self._lately <= ANSWERS_PER_S_MAX


class Inquirer(Layer):
    """asks every member how it is, and is none itself"""

    name = "inquirer"
    requires = frozenset({"datagrams"})
    headers: ClassVar[tuple[type[Header], ...]] = (Inquire, Report)

    def __init__(self, overheard: Sequence[type[Header]] = ()) -> None:
        # What members say to each other comes by, too: it is understood, so that it is no malformed frame, and dropped.
        self.headers = (*type(self).headers, *overheard)  # type: ignore[misc]
        self.on_answer: Callable[[int, bytes], None] = lambda member, report: None
        self._question = 0
        self._parts: dict[int, dict[int, bytes]] = {}

    def ask(self) -> None:
        """A new question, to everybody who can be reached; answers to older ones are given up."""
        self._question += 1
        self._parts = {}
        self._say()

    def _say(self) -> None:
        self.pass_down(Frame(sender=self.node.me, headers=[Inquire(self._question)]))

    def event_up(self, event: Event) -> None:
        if isinstance(event, Introduced) and self._question:  # there are members that the question did not reach
            self._say()

    def up(self, frame: Frame) -> None:
        header = frame.headers[-1] if frame.headers else None
        if type(header) is not Report or header.question != self._question:
            return
        if len(self._parts) >= PEERS_MAX and frame.sender not in self._parts:
            return
        parts = self._parts.setdefault(frame.sender, {})
        if header.part in parts or header.part >= header.parts:
            return
        parts[header.part] = header.content
        if len(parts) == header.parts:
            self.on_answer(frame.sender, b"".join(parts[at] for at in sorted(parts)))
