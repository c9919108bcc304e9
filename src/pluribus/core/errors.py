"""Every exception that Pluribus raises, drawn as a tree.

::

    PluribusError                 catch this to catch all of them
    ├── BadInput                  the caller's values are wrong; also a ValueError
    │   ├── BadUrl                a bus URL that does not parse or names no engine
    │   ├── BadStack              layers that do not fit on each other
    │   ├── BadBody               a message body that cannot travel
    │   ├── BadFilter             a filter that does not parse or compares what cannot be compared
    │   ├── BadTopic              a topic or a pattern of topics that is none
    │   ├── BadPattern            a row pattern that does not parse, or that would have to remember without bound
    │   ├── BadPlan               an interconnection file that does not parse, or that cannot become a bus
    │   ├── BadKqml               a KQML message that does not parse
    │   ├── BadTransformation     a chain of transformations that does not parse
    │   ├── TooLarge              over a limit of ``core.limits``
    │   └── GroupMismatch         a group opened again with other promises
    ├── Unavailable               the surroundings do not allow it; also an OSError
    │   ├── AddressTaken          the port is in use
    │   ├── NoInterface           the interface does not exist here
    │   ├── MissingExtra          an optional dependency or server is not installed
    │   ├── Unreachable           nobody answers there
    │   ├── Fenced                another process has taken this store over
    │   └── Damaged               what a store holds is not what was written: repair it from another copy
    ├── NotPrimary                most members are elsewhere, so nothing can be ordered here now
    ├── Excluded                  the primary went on without this member, which has missed messages
    ├── Gap                       events are missing here: the reader was too slow, or away
    ├── NoMembers                 too few members are there to do it, or left of them
    │   └── NoKeeper              nobody on this bus keeps durable topics, so nothing was published
    ├── Unanswered                too few good answers to a question came
    │   └── AnswersLate           they did not come in time; also a TimeoutError
    ├── RemoteError               what the handler of another member raised
    │   └── Sorry                 the object understood, and has no answer
    ├── NoObject                  no object has this id or alias
    ├── Closed                    the bus or group was closed; also a ConnectionError
    ├── Overflow                  a bounded queue is full and the caller asked not to wait
    │   └── WouldDeadlock         the waiting task alone could make the room it waits for
    ├── Uncertain                 it may have happened or not: ask again with the same id
    ├── LeaseEnded                a lease is over: what it held is, or will be, another's
    ├── TransactionEnded          a transaction was committed, aborted, or outlived its lease
    ├── Undelivered               the bus was closed before everybody had what was sent
    │   └── Expired               a message of a software bus outlived its time before all had acknowledged it
    ├── Refused                   another member, or this one, said no, and why
    ├── NotTransformed            a body that a chain of transformations cannot transform
    ├── LogChanged                the durable log is another one than was read before, or lacks what was in it
    ├── JobFailed                 a standing query on Spark ended with an error
    ├── MalformedFrame            bytes that are no frame of ours; counted, never raised into a loop
    └── SimulationError           a world was misused, or a promise was broken in it
        └── Violation             a checker found a broken promise

A message names the value, the limit it broke and the remedy, in one sentence.
"""

from collections.abc import Sequence
from typing import Any


class PluribusError(Exception):
    """The root: whatever Pluribus raises on purpose is one of these."""


class BadInput(PluribusError, ValueError):
    pass


class BadUrl(BadInput):
    pass


class BadStack(BadInput):
    pass


class BadBody(BadInput):
    pass


class BadFilter(BadInput):
    """Where in the text (characters are counted from 1), why, and what to write instead."""

    text: str = ""
    position: int = 1
    reason: str = ""
    remedy: str = ""

    @classmethod
    def at(cls, text: str, position: int, reason: str, remedy: str) -> "BadFilter":
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        error = cls(f"filter {shown!r}, character {position}: {reason}; {remedy}")
        error.text, error.position, error.reason, error.remedy = text, position, reason, remedy
        return error


class BadTopic(BadInput):
    """Where in the text (characters are counted from 1), why, and what to write instead."""

    text: str = ""
    position: int = 1
    reason: str = ""
    remedy: str = ""

    @classmethod
    def at(cls, text: str, position: int, reason: str, remedy: str) -> "BadTopic":
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        error = cls(f"topic {shown!r}, character {position}: {reason}; {remedy}")
        error.text, error.position, error.reason, error.remedy = text, position, reason, remedy
        return error


class BadPattern(BadInput):
    """As ``BadFilter``. Patterns are long, so the message shows the text around the place."""

    text: str = ""
    position: int = 1
    reason: str = ""
    remedy: str = ""

    @classmethod
    def at(cls, text: str, position: int, reason: str, remedy: str) -> "BadPattern":
        around = " ".join(text[max(0, position - 21) : position + 39].split())
        error = cls(f"pattern, character {position}, near {around!r}: {reason}; {remedy}")
        error.text, error.position, error.reason, error.remedy = text, position, reason, remedy
        return error


class BadPlan(BadInput):
    """Where in the file (lines and columns are counted from 1), why, and what to write instead."""

    line: int = 1
    column: int = 1
    reason: str = ""
    remedy: str = ""

    @classmethod
    def at(cls, file: str, line: int, column: int, reason: str, remedy: str) -> "BadPlan":
        error = cls(f"{file}, line {line}, column {column}: {reason}; {remedy}")
        error.line, error.column, error.reason, error.remedy = line, column, reason, remedy
        return error


class BadKqml(BadInput):
    """Where in the text (lines and columns are counted from 1), why, and what to write instead."""

    text: str = ""
    line: int = 1
    column: int = 1
    reason: str = ""
    remedy: str = ""

    @classmethod
    def at(cls, text: str, line: int, column: int, reason: str, remedy: str) -> "BadKqml":
        error = cls(f"KQML, line {line}, column {column}: {reason}; {remedy}")
        error.text, error.line, error.column, error.reason, error.remedy = text, line, column, reason, remedy
        return error


class BadTransformation(BadInput):
    """Where in the text (characters are counted from 1), why, and what to write instead."""

    text: str = ""
    position: int = 1
    reason: str = ""
    remedy: str = ""

    @classmethod
    def at(cls, text: str, position: int, reason: str, remedy: str) -> "BadTransformation":
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        error = cls(f"transformation {shown!r}, character {position}: {reason}; {remedy}")
        error.text, error.position, error.reason, error.remedy = text, position, reason, remedy
        return error


class TooLarge(BadInput):
    pass


class GroupMismatch(BadInput):
    pass


class Unavailable(PluribusError, OSError):
    pass


class AddressTaken(Unavailable):
    pass


class NoInterface(Unavailable):
    pass


class MissingExtra(Unavailable):
    pass


class Unreachable(Unavailable):
    pass


class Fenced(Unavailable):
    pass


class Damaged(Unavailable):
    pass


class NotPrimary(PluribusError):
    pass


class Excluded(PluribusError):
    """Raised to a reader in the place of the messages that it missed. If the primary went on without this member, the
    next read continues behind the gap. If this member was excluded because it did not read, the group is closed."""


class Gap(PluribusError):
    """Raised to a reader in the place of missing events; the next read continues behind them. ``missed`` is their
    number, if it is known."""

    def __init__(self, text: str, missed: int = 0) -> None:
        super().__init__(text)
        self.missed = missed


class NoMembers(PluribusError):
    """If a question was asked, ``answers`` has the answers that came."""

    def __init__(self, text: str, answers: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.answers = answers


class NoKeeper(NoMembers):
    pass


class Unanswered(PluribusError):
    """``answers`` are those that came, errors included."""

    def __init__(self, text: str, answers: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.answers = answers


class AnswersLate(Unanswered, TimeoutError):
    pass


class RemoteError(PluribusError):
    """``kind`` is the name of the exception's type in the other process; the text includes it."""

    def __init__(self, text: str, kind: str = "") -> None:
        super().__init__(text)
        self.kind = kind


class Sorry(RemoteError):
    """A handler raises it to answer ``sorry``; the same exception is raised to the asker."""


class NoObject(PluribusError):
    pass


class Closed(PluribusError, ConnectionError):
    pass


class Overflow(PluribusError):
    pass


class WouldDeadlock(Overflow):
    pass


class Uncertain(PluribusError):
    """``id`` is the identity of the message, where it has one. A message that is sent again with another identity may
    be delivered twice."""

    def __init__(self, text: str, id: tuple[int, int] = (0, 0)) -> None:
        super().__init__(text)
        self.id = id


class LeaseEnded(PluribusError):
    pass


class TransactionEnded(PluribusError):
    pass


class Undelivered(PluribusError):
    pass


class Expired(Undelivered):
    """``missing`` names the connections on which the acknowledgement did not come."""

    def __init__(self, text: str, missing: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.missing = tuple(missing)


class Refused(PluribusError):
    pass


class NotTransformed(PluribusError):
    """Raise it in a transformation of your own to say why a message is not transformed."""


class LogChanged(PluribusError):
    pass


class JobFailed(PluribusError):
    pass


class MalformedFrame(PluribusError):
    pass


class SimulationError(PluribusError):
    pass


class Violation(SimulationError):
    pass
