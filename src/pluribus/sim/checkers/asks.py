"""Checkers of questions and calls. A history tells of each, by the asker's own body, which is used once:

``ask`` (``promises`` says how many answers), ``heard`` (delivered by a member), ``reply`` (a member answered; ``id`` is
the member and a number of its own), ``answer`` (the asker got it) and ``over`` (``promises`` says how: answers, too few
members, errors, late, closed). A ``view`` has the stamp of the group's view as its number.

And of messages that are waited for: ``send``, then ``stable`` or ``uncertain``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.errors import Violation
from ...core.ids import MemberId
from ...layers.membership.words import bus_stamp_of
from ..machinery.history import Happening, History

ANSWERS, NO_MEMBERS, UNANSWERED, LATE, CLOSED = "answers", "no members", "unanswered", "late", "closed"


class Story:
    """One question, from its asker's side."""

    __slots__ = ("answered", "asked", "errors", "heard", "latest", "over", "present", "shown", "stamp", "view")

    def __init__(self, asked: Happening, view: Happening | None) -> None:
        self.asked = asked
        self.heard = False
        self.answered: list[int] = []
        self.errors = 0
        self.over: Happening | None = None
        self.begin(view)

    def begin(self, view: Happening | None) -> None:
        """This is the asker's view: when it asks, and then when it hears its own question."""
        self.view = view.members if view is not None else ()
        self.stamp = self.latest = view.id[0] if view is not None else 0
        """The stamps of that view, and of the asker's latest view."""
        self.shown = set(self.view)
        """Members of that view that have been in every view of the asker since."""
        self.present = self.shown
        """When it is over: those of them that came with the asker from that view to its latest one."""

    def changed(self, view: Happening) -> None:
        """The asker is shown another view."""
        self.latest = view.id[0]
        self.shown = self.shown.intersection(view.members)

    def end(self, over: Happening, views: list[Happening]) -> None:
        """It is over; ``views`` are those of all members of the group until now.

        What counts is the order of views, not time. An asker that was cut off may be shown a view when the other
        members of it have long gone on to later views without the asker, or have gone on without ever being in it.
        They have not delivered the question. When they are back in the asker's view, they are no members that were
        asked: the messages of one side of a partition do not reach the other side afterwards.
        """
        self.over = over
        asker = self.asked.member
        apart = {view.member for view in views if view.id[0] > self.stamp and asker not in view.members}
        self.present = self.shown - apart
        of = bus_stamp_of(self.stamp)
        if bus_stamp_of(self.latest) != of:
            self.present &= {view.member for view in views if bus_stamp_of(view.id[0]) == of}

    @property
    def replies(self) -> str:
        return self.asked.promises

    @property
    def need(self) -> int:
        if self.replies in ("all", "majority"):
            return 1 if self.replies == "all" else len(self.view) // 2 + 1
        return int(self.replies)

    def __str__(self) -> str:
        return f"{MemberId(self.asked.member)!r} asked {self.asked.body!r} at {self.asked.at:.6f} for {self.replies}"


def stories(history: History) -> Iterator[Story]:
    """Every question, with its outcome."""
    views: dict[tuple[int, str], Happening] = {}
    of_group: dict[str, list[Happening]] = {}
    found: dict[bytes, Story] = {}
    going_on: dict[tuple[int, str], list[Story]] = {}
    for h in history.happenings:
        where = (h.member, h.group)
        if h.what == "view":
            views[where] = h
            of_group.setdefault(h.group, []).append(h)
            for story in going_on.get(where, ()):
                story.changed(h)
        elif h.what == "ask":
            found[h.body] = Story(h, views.get(where))
            going_on.setdefault(where, []).append(found[h.body])
        elif h.what == "heard" and h.body in found and found[h.body].asked.member == h.member:
            story = found[h.body]
            story.heard = True
            story.begin(views.get(where))
        elif h.what == "answer":
            found[h.body].answered.append(h.id[0])
            found[h.body].errors += h.orphan
        elif h.what == "over":
            found[h.body].end(h, of_group.get(h.group, []))
            going_on[where].remove(found[h.body])
    yield from found.values()


def answers_are_given(history: History) -> int:
    """An answer is what that member replied, to a question that it had delivered; each member answers once."""
    heard: set[tuple[int, bytes]] = set()
    replied: set[tuple[tuple[int, int], bytes]] = set()
    answered: set[tuple[int, bytes]] = set()
    checks = 0
    for h in history.happenings:
        if h.what == "heard":
            heard.add((h.member, h.body))
        elif h.what == "reply":
            replied.add((h.id, h.body))
        elif h.what == "answer":
            checks += 1
            sender = h.id[0]
            if (sender, h.body) not in heard:
                raise Violation(f"{MemberId(sender)!r} answered {h.body!r}, which it never delivered")
            if (h.id, h.body) not in replied:
                raise Violation(f"{MemberId(sender)!r} is said to have answered {h.body!r} with {h.id[1]}")
            if (sender, h.body) in answered:
                raise Violation(f"{MemberId(sender)!r} answered {h.body!r} twice")
            answered.add((sender, h.body))
    return checks


def asks_end(history: History) -> int:
    """Every question has ended at the end."""
    checks = 0
    for story in stories(history):
        checks += 1
        if story.over is None:
            raise Violation(f"{story}, and still waits")
    return checks


def asks_are_answered(history: History) -> int:
    """Enough answers, or the reason why not. ``all``: every member that delivered it and is still there has answered. A
    majority: more than half of those who delivered it. Too few members, or late: there are no such answers."""
    checks = 0
    for story in stories(history):
        over = story.over
        if over is None or over.promises == CLOSED:
            continue
        checks += 1
        good = len(story.answered) - story.errors
        silent = story.present - set(story.answered)
        if over.promises == ANSWERS:
            if story.replies == "all" and (silent or not story.heard):
                raise Violation(f"{story}, and got no answer of {MemberId(min(silent or {0}))!r}, who was there")
            if story.replies != "all" and good < story.need:
                raise Violation(f"{story} and got {good} of {story.need} good answers")
        elif over.promises == NO_MEMBERS:
            if (story.replies == "all" and story.present) or good + len(silent) >= story.need:
                raise Violation(f"{story} and was told of too few members, though {len(silent)} could still answer")
        elif over.promises == UNANSWERED:
            if good + len(silent) >= story.need:
                raise Violation(f"{story} and was told of too many errors, though {len(silent)} could still answer")
        elif over.promises == LATE and story.heard and story.shown <= set(story.answered):
            raise Violation(f"{story} and waited in vain, though all who were there had answered")
    return checks


def asks_reach(history: History) -> int:
    """What is asked of all in a calm network, after the last fault, is answered by everybody."""
    settled = next(history.of("settled"), None)
    checks = 0
    for story in stories(history):
        if settled is None or story.asked.at < settled.at:
            continue
        checks += 1
        if set(story.answered) != set(settled.members):
            raise Violation(f"{story} after all faults, and {len(story.answered)} of {len(settled.members)} answered")
    return checks


def stable_is_everywhere(history: History) -> int:
    """When a sender is told that its message is stable, it has been delivered by every member that was in its view when
    it was sent and still is. For groups where what is received is delivered at once."""
    views: dict[tuple[int, str], set[int]] = {}
    present: dict[tuple[int, str], dict[bytes, set[int]]] = {}
    delivered: dict[bytes, set[int]] = {}
    checks = 0
    for h in history.happenings:
        where = (h.member, h.group)
        if h.what == "view":
            views[where] = set(h.members)
            for members in present.get(where, {}).values():
                members &= views[where]
        elif h.what == "send":
            present.setdefault(where, {})[h.body] = views.get(where, set()).copy()
        elif h.what == "deliver":
            delivered.setdefault(h.body, set()).add(h.member)
        elif h.what == "uncertain":
            del present[where][h.body]
        elif h.what == "stable":
            checks += 1
            lacking = present[where].pop(h.body) - delivered.get(h.body, set())
            if lacking:
                raise Violation(
                    f"{MemberId(h.member)!r} was told at {h.at:.6f} that everybody has {h.body[:40]!r}, which "
                    f"{MemberId(min(lacking))!r} has not delivered"
                )
    return checks
