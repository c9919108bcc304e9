"""Questions, answers and errors between programs: the one vocabulary of members, keepers and clients.

A question belongs to a *style*, which registers its words once (``Words``): the questions that it understands, the type
of the answer to each, and what it pushes to listeners. What carries questions (a group of the bus, a TCP connection, a
call in the own process) knows no style; the handler is found by the style's name.

The asker numbers its questions; they are answered in any order. Unknown fields at the end of a struct are skipped, so
that a later minor release may add some. If a question cannot be read, its number still can, and the reason is the
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from ..core import errors
from ..core.errors import MalformedFrame, PluribusError, Refused, RemoteError, Uncertain
from ..core.ids import MessageId

TEXT_CHARACTERS_MAX = 2_000
"""The length of an error's text; the rest is cut off."""
WAIT_S_MAX = 30.0
"""The largest ``wait_s`` of a question, for which it is held while there is nothing to answer yet."""


class Asked(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """``request`` is one of the style's questions. Number 0: no answer is wanted."""

    number: int
    style: str
    request: Any


class Answered(msgspec.Struct, array_like=True, frozen=True, tag=2):
    number: int
    result: msgspec.Raw


class Failed(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """``kind`` is the name of the exception, ``id`` that of ``Uncertain``."""

    number: int
    kind: str
    text: str
    id: MessageId = (0, 0)


class Pushed(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Something for a program that listens; no answer to a question."""

    style: str
    body: msgspec.Raw


class Arriving(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """``Asked`` as it is read: the question is decoded later, when its style is known."""

    number: int
    style: str
    request: msgspec.Raw


Word = Arriving | Answered | Failed | Pushed

Need = tuple[str, str, str]
"""A right that a question needs: style, destination, verb, as in ``("queue", "orders", "send")``. ``docs/access.md``
has them all. Two verbs with ``|`` between them: either is enough."""
Right = Callable[[Any], Iterable[Need]] | str
"""The rights that a question needs; or a text that says why it needs none."""
ANY = "any"
"""The verb of a need that is met by a right with any verb on the destination."""
ANYWHERE = ""
"""The destination of a need that is met by a right on any destination of the style."""
MEMBERS_ONLY: Need = ("members", "-", "only")
"""A need that no access list can grant to a client: the question is for members of the bus only."""

_encode = msgspec.msgpack.Encoder().encode
_word: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)
_styles: dict[str, Words] = {}
_of: dict[type, Words] = {}


class Words:
    """One style's vocabulary; making one registers it. ``answers`` maps each question (a tagged struct) to the type of
    its answer, ``pushed`` is the type of what is pushed, ``rights`` maps questions to the rights that a client needs. A
    question without an entry needs the verb with the question's own name, on any destination of the style."""

    def __init__(
        self,
        style: str,
        answers: Mapping[type, Any],
        pushed: Any = None,
        rights: Mapping[type, Right] | None = None,
    ) -> None:
        before = _styles.get(style)
        if before is not None and before.questions != tuple(answers):
            raise errors.BadInput(f"a style {style!r} has registered its words already: give yours another name")
        self.style = style
        self.questions: tuple[type, ...] = tuple(answers)
        self.rights: Mapping[type, Right] = rights or {}
        self._question: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(reduce(or_, answers))
        self._answers = {kind: msgspec.msgpack.Decoder(answer) for kind, answer in answers.items()}
        self._pushed: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(pushed)
        _styles[style] = self
        _of.update(dict.fromkeys(answers, self))

    def question(self, raw: msgspec.Raw) -> Any:
        try:
            return self._question.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedFrame(f"a question that the style {self.style!r} does not have: {error}") from None

    def answer(self, question: type, raw: msgspec.Raw) -> Any:
        try:
            return self._answers[question].decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedFrame(f"an answer that the style {self.style!r} does not give: {error}") from None

    def push(self, raw: msgspec.Raw) -> Any:
        try:
            return self._pushed.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedFrame(f"something that the style {self.style!r} does not push: {error}") from None


def style_of(request: Any) -> str:
    """The style that a question belongs to."""
    return _of[type(request)].style


def needs_of(request: Any) -> Iterable[Need]:
    """The rights that a client needs for a question, where there is an access list."""
    words = _of[type(request)]
    right = words.rights.get(type(request))
    if right is None:
        return ((words.style, ANYWHERE, type(request).__name__.lower()),)
    return () if isinstance(right, str) else right(request)


def words_of(style: str) -> Words:
    """The vocabulary of a style that has registered it."""
    return _styles[style]


def styles() -> Iterable[str]:
    """All styles that registered their words."""
    return _styles.keys()


# Writing.


def asked(number: int, request: Any) -> bytes:
    return _encode(Asked(number, _of[type(request)].style, request))


def answered(number: int, result: Any) -> bytes:
    return _encode(Answered(number, msgspec.Raw(_encode(result))))


def failed(number: int, error: BaseException) -> bytes:
    id = error.id if isinstance(error, Uncertain) else (0, 0)
    return _encode(Failed(number, type(error).__name__, str(error)[:TEXT_CHARACTERS_MAX], id))


def pushed(style: str, body: Any) -> bytes:
    return _encode(Pushed(style, msgspec.Raw(_encode(body))))


# Reading.


def decode(data: bytes) -> Word:
    try:
        return _word.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"bytes that no program of this bus sends: {error}") from None


loading: list[Callable[[str], object]] = []
"""Functions that are called with the name of a style that has not registered its words; they may load the style."""


def request_of(word: Arriving) -> Any:
    """The question; ``Refused`` if its style is unknown here, ``MalformedFrame`` if the style has no such question."""
    if word.style not in _styles:
        for load in loading:
            load(word.style)
    words = _styles.get(word.style)
    if words is None:
        raise Refused(
            f"nobody here answers questions of the style {word.style!r}: the program that was asked is of another "
            "release, or has not loaded it"
        )
    return words.question(word.request)


def result_of(request: Any, answer: Answered) -> Any:
    """The answer to a question that was asked here."""
    return _of[type(request)].answer(type(request), answer.result)


def push_of(word: Pushed) -> Any:
    words = _styles.get(word.style)
    if words is None:
        raise MalformedFrame(f"something of a style {word.style!r} that was not asked for")
    return words.push(word.body)


def error_of(failure: Failed) -> PluribusError:
    """The exception as it was raised there, if it is one of ``core.errors``; else a ``RemoteError``."""
    kind = getattr(errors, failure.kind, None)
    if kind is Uncertain:
        return Uncertain(failure.text, failure.id)
    if isinstance(kind, type) and issubclass(kind, PluribusError):
        try:
            return kind(failure.text)
        except TypeError:
            pass
    return RemoteError(failure.text, failure.kind)
