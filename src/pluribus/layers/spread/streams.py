"""What a member knows of one proxy's messages on one list: where it sent them, who has them, which can be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ...core.frame import Frame
from .lists import Listed

ROOT = 0
"""In the place of a parent: this member is the root."""

Range = tuple[int, int]
"""A sub-list: the index of its first member, and how many there are."""

StreamKey = tuple[int, int, int]
"""List, index of the proxy, and the proxy's number of the stream."""


class Task:
    """A sub-list for which this member is responsible, and the children in it that have not answered yet."""

    __slots__ = ("due_at", "parent", "scope", "shape", "since", "skipped", "tries", "waiting")

    def __init__(self, parent: int, scope: Range, shape: int, now: float) -> None:
        self.parent = parent
        self.scope = scope
        self.shape = shape
        self.since = now
        self.due_at = 0.0
        self.tries = 0
        self.waiting: dict[int, Range] = {}
        """By the index of a child: the part of the sub-list for which the child is responsible."""
        self.skipped: set[int] = set()
        """Members that could not be reached, as far as this member and its children know."""


class Record:
    """One message that is here, kept until everybody has it."""

    __slots__ = ("frame", "origin", "submission", "tasks")

    def __init__(self, frame: Frame, origin: int, submission: int) -> None:
        self.frame = frame
        self.origin = origin
        self.submission = submission
        self.tasks: dict[tuple[int, Range], Task] = {}


class Stream:
    """The messages of one proxy on one list. They are numbered without gaps and passed up in that order."""

    __slots__ = (
        "asked",
        "asked_at",
        "by",
        "closed",
        "complete",
        "done",
        "end",
        "heard_at",
        "key",
        "last_shape",
        "listed",
        "next",
        "orphan",
        "parent",
        "records",
        "told_done",
    )

    def __init__(self, key: StreamKey, listed: Listed, now: float) -> None:
        self.key = key
        self.listed = listed
        self.records: dict[int, Record] = {}
        self.next = 0
        """Messages before this number were passed up; at the proxy itself, sent."""
        self.done = 0
        """Every member has the messages before this number; they are forgotten."""
        self.complete: set[int] = set()
        """At the proxy: messages that every member has, although some lack an earlier one."""
        self.told_done = 0
        self.parent = 0
        """The member that sent us the latest message."""
        self.heard_at = now
        self.last_shape = 1
        self.asked = 0
        self.asked_at = 0.0
        self.by = key[1]
        """The proxy; or its heir, once this member has told the heir what it holds. Messages that another member starts
        after that are refused."""
        self.orphan = False
        """The proxy is taken for dead, and its heir has not settled the stream yet."""
        self.closed = False
        self.end = 0

    @property
    def proxy(self) -> int:
        """The member that numbers its messages."""
        return self.listed.members[self.key[1]]

    def missing(self, most: int, end: int | None = None) -> list[int]:
        """The first ``most`` numbers that are missing here although later ones were sent, or although messages up to
        ``end`` were. The list is bounded because ``end`` comes from another member."""
        end = max(self.records, default=0) if end is None else end
        return list(islice((number for number in range(self.next, end) if number not in self.records), most))

    def ahead(self) -> list[int]:
        return sorted(number for number in self.records if number >= self.next)

    def waiting(self) -> Iterator[tuple[int, Record, Task]]:
        """Every task that waits for a child; a list, because an answer changes the tasks."""
        return iter(
            [
                (number, record, task)
                for number, record in self.records.items()
                for task in record.tasks.values()
                if task.waiting
            ]
        )

    def forget(self, done: int) -> bool:
        """Every member has the messages before ``done``. True if one of them never came here: then this member was
        taken for dead, and must get the messages another way."""
        if done <= self.done:
            return False
        for number in [number for number in self.records if number < done]:
            del self.records[number]
        self.complete = {number for number in self.complete if number >= done}
        self.done = done
        jumped = self.next < done
        self.next = max(self.next, done)
        return jumped

    def completed(self, number: int) -> bool:
        """At the proxy: every member has this message. True if that moved ``done``."""
        self.complete.add(number)
        done = self.done
        while done in self.complete:
            done += 1
        if done == self.done:
            return False
        self.forget(done)
        return True

    def close(self, end: int) -> None:
        self.closed = True
        self.orphan = False
        self.end = end
        self.records.clear()
        self.complete.clear()

    def validate(self) -> None:
        assert all(number >= self.done for number in self.records)
        assert self.next >= self.done or self.closed
        assert not (self.closed and self.records)
        for record in self.records.values():
            for (parent, scope), task in record.tasks.items():
                assert (parent, scope) == (task.parent, task.scope)
                assert not task.skipped & task.waiting.keys()


class Submission:
    """A frame that this member handed to a proxy, until it is known that everybody has it."""

    __slots__ = ("due_at", "frame", "listed", "proxy", "tries")

    def __init__(self, frame: Frame, listed: Listed, proxy: int) -> None:
        self.frame = frame
        self.listed = listed
        self.proxy = proxy
        self.tries = 0
        self.due_at = 0.0


class Seen:
    """Which submissions of one origin were passed up: a message may come by two proxies if the first one failed."""

    __slots__ = ("above", "floor")

    def __init__(self) -> None:
        self.floor = 1
        self.above: set[int] = set()

    def first_time(self, number: int) -> bool:
        if number < self.floor or number in self.above:
            return False
        self.above.add(number)
        while self.floor in self.above:
            self.above.remove(self.floor)
            self.floor += 1
        if len(self.above) > SEEN_MAX:
            self.floor = min(self.above) + 1
            self.above = {other for other in self.above if other >= self.floor}
        return True


SEEN_MAX = 4_096
"""The most submissions of one origin between the first that is missing and the last that came."""
