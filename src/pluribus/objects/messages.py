"""Messages between objects: KQML messages, or objects; and the answer that a handler's result becomes.

What performatives mean here:

============  =========================================================================================================
``tell``      the content is for the receiver; answered only if ``:reply-with`` is there
``ask-one``   the receiver answers once: what its handler returns is the content of a ``tell``; nothing is ``sorry``
``ask-all``   the receiver answers with all that it knows: the content of the ``tell`` is a list
``achieve``   the receiver does what the content says; a ``tell`` says that it is done
``broadcast`` to every object of the alias; a message in ``:content`` is handled as if it had come itself
``subscribe`` the receiver tells the sender of every change of what the content asks for, until a ``discard``
``register``  the receiver is known by the alias ``:name`` as well; ``unregister`` ends that
``sorry``     the answer of who understood and has no answer
``error``     the answer of who could not handle the message: ``:kind`` of the exception, ``:comment`` is its text
others        reach the object
============  =========================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..core.errors import BadInput, RemoteError, Sorry
from ..wire.kqml import Kqml, Word, kqml, name_of, plain
from .names import PREFIX

ASKS = ("ask-one", "ask-all")
ENDS = ("error", "sorry")
COMMENT_CHARS_MAX = 2_000
"""Characters of an exception's text that are sent."""


class Later:
    """The result of a handler that will answer by itself, with a message of its own."""

    def __repr__(self) -> str:
        return "LATER"


LATER = Later()


class Keep:
    """The result of a preemptive object that keeps a message: its target never gets it."""

    def __repr__(self) -> str:
        return "KEEP"


KEEP = Keep()


class ObjectMessage(msgspec.Struct, frozen=True):
    """An object on its way, alone or as an answer."""

    body: Any
    sender: str = ""
    receiver: str = ""
    reply_with: str = ""
    in_reply_to: str = ""
    bridges: int = 0
    """The number of bridges that it has crossed."""

    @property
    def content(self) -> Any:
        """The object."""
        return self.body


Said = Kqml | ObjectMessage


def sender_of(message: Said) -> str:
    """The id of the sending object; empty if it is not known."""
    return str(message.parameters.get("sender", "")) if isinstance(message, Kqml) else message.sender


def token_of(message: Said) -> str:
    """The token that an answer must name; empty if no answer is wanted."""
    return str(message.parameters.get("reply-with", "")) if isinstance(message, Kqml) else message.reply_with


def answers_token(message: Said) -> str:
    """The token that this message answers; empty if it answers nothing."""
    return str(message.parameters.get("in-reply-to", "")) if isinstance(message, Kqml) else message.in_reply_to


def addressed(message: Said, sender: str, receiver: str, token: str = "") -> Said:
    """The message with its sender and its receiver, and with the token that an answer must name."""
    if isinstance(message, Kqml):
        parameters = message.parameters.copy()
        parameters["sender"] = Word(sender)
        parameters["receiver"] = Word(receiver) if receiver.startswith(PREFIX) else name_of(receiver)
        if token:
            parameters["reply-with"] = Word(token)
        return Kqml(message.performative, parameters)
    reply_with = token or message.reply_with
    return ObjectMessage(message.body, sender, receiver, reply_with, message.in_reply_to, message.bridges)


def answer_of(message: Said, result: Any, by: str) -> Said | None:
    """The answer for a handler's result; None if there is none."""
    token = token_of(message)
    if not token or result is LATER or (isinstance(message, Kqml) and message.performative in ENDS):
        return None
    to, performative = sender_of(message), message.performative if isinstance(message, Kqml) else ""
    if isinstance(result, Kqml):
        return result.changed(in_reply_to=Word(token), sender=Word(by), receiver=Word(to))
    if isinstance(result, ObjectMessage):
        return ObjectMessage(result.body, by, to, result.reply_with, token)
    if result is None:
        answer = "sorry" if performative in ASKS else "tell"
        return kqml(answer, in_reply_to=Word(token), sender=Word(by), receiver=Word(to))
    if performative == "ask-all" and isinstance(result, Iterable) and not isinstance(result, str | bytes):
        result = list(result)
    try:
        return kqml("tell", content=result, in_reply_to=Word(token), sender=Word(by), receiver=Word(to))
    except BadInput:
        return ObjectMessage(result, by, to, "", token)


def failure_of(message: Said, error: BaseException, by: str) -> Kqml | None:
    """The answer for a handler's exception; None if the message was an answer itself, or if no answer is wanted and the
    sender is unknown."""
    token, to = token_of(message), sender_of(message)
    if not to or (isinstance(message, Kqml) and message.performative in ENDS):
        return None
    parameters: dict[str, Any] = {"in_reply_to": Word(token)} if token else {}
    comment = str(error)[:COMMENT_CHARS_MAX].encode("utf-8", "replace").decode()
    if isinstance(error, Sorry):
        return kqml("sorry", comment=comment, sender=Word(by), receiver=Word(to), **parameters)
    kind = type(error).__name__
    if isinstance(error, RemoteError) and error.kind:  # forwarded by a bridge
        kind, comment = error.kind, comment.removeprefix(f"{error.kind}: ")
    return kqml("error", kind=kind, comment=comment, sender=Word(by), receiver=Word(to), **parameters)


def error_of(answer: Said) -> RemoteError | None:
    """The exception that an answer means; None if the answer is not an error."""
    if not isinstance(answer, Kqml) or answer.performative not in ENDS:
        return None
    comment = str(plain(answer.get("comment", "")))
    if answer.performative == "sorry":
        return Sorry(comment or "the object has no answer", "sorry")
    kind = str(plain(answer.get("kind", ""))) or "error"
    return RemoteError(f"{kind}: {comment}", kind)
