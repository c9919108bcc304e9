"""Bodies of the protocols' own kinds: questions to a group, calls of methods, and the answers to both.

A question or a call wraps the application's body together with its kind. So one batch holds questions of any kind, and
plain messages need no field for questions. ``question`` is a number that the asker never uses twice; answers name it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..core.errors import MalformedFrame
from ..core.frame import Frame, Number
from ..core.limits import CALL_ARGUMENTS_MAX, NAME_CHARS_MAX, VIEW_MEMBERS_MAX
from .bodies import BYTES, array_header, decode_bodies, encode_body, reserve

QUESTION, ANSWER, CALL = 3, 4, 5
MARKED = frozenset({QUESTION, ANSWER, CALL})

GOOD, FAILED, ABSENT = 0, 1, 2
"""Outcomes: an answer; the handler raised; this member answers no such questions, and is not to be counted."""

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Wrapped = tuple[Number | Name, bytes]
"""A body with its kind."""


class Asked(msgspec.Struct, array_like=True, frozen=True):
    question: Number
    body: Wrapped
    of: Annotated[tuple[Number, ...], msgspec.Meta(max_length=VIEW_MEMBERS_MAX)] = ()
    """The members that are to answer; empty: all."""


class Called(msgspec.Struct, array_like=True, frozen=True):
    question: Number
    method: Name
    args: Annotated[tuple[Wrapped, ...], msgspec.Meta(max_length=CALL_ARGUMENTS_MAX)] = ()
    named: Annotated[dict[Name, Wrapped], msgspec.Meta(max_length=CALL_ARGUMENTS_MAX)] = {}


class Answered(msgspec.Struct, array_like=True, frozen=True):
    question: Number
    outcome: Number = GOOD
    body: Wrapped = (BYTES, b"")
    """With ``FAILED`` a pair of texts: the name of the exception's type, and what it says."""


reserve(QUESTION, Asked)
reserve(ANSWER, Answered)
reserve(CALL, Called)


def wrapped(body: object) -> Wrapped:
    """A body as it travels inside another; ``BadBody`` or ``TooLarge`` if it cannot."""
    return encode_body(body)


def unwrapped(wrapped: Wrapped) -> Any:
    """The body again; ``MalformedFrame`` when it is not what it says."""
    kind, encoded = wrapped
    if kind == BYTES:
        return encoded
    return decode_bodies(kind, msgspec.Raw(array_header(1) + encoded), 1)[0]


def words_of(frame: Frame) -> list[Any]:
    """The words of a frame of one of these kinds; ``MalformedFrame`` when they are not what the frame says."""
    bodies = frame.bodies
    if isinstance(bodies, list):  # joined by ``join_bodies``, so only plain bytes are a list
        raise MalformedFrame(f"a list of bytes of kind {frame.kind!r}")
    return decode_bodies(frame.kind, bodies, frame.count)
