"""Commands and questions of the access list; and the requests of clients that log in or change the list. Secrets are in
none of the commands: passwords are hashed, and tokens digested, before they travel there."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.errors import MalformedFrame
from ..core.limits import NAME_CHARS_MAX, TOPIC_CHARS_MAX
from ..group.host.rights import MachineRights
from ..wire.asking import Words

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=2 * TOPIC_CHARS_MAX)]
Short = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Secretive = Annotated[str, msgspec.Meta(max_length=1_024)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

DONE, REFUSED = 0, 1
ROLE = "role:"
ANYONE = "anyone"
"""In the place of a user: anyone, logged in or not."""
MACHINE = "access"
AUDIT = "pluribus/audit"
"""The durable topic with every change of the list and every refusal. No client writes there."""


class User(msgspec.Struct, frozen=True, array_like=True):
    name: Name
    password: Annotated[str, msgspec.Meta(max_length=512)] = ""
    """A hash (``passwords.py``); empty: no password is right."""
    roles: Annotated[list[Name], msgspec.Meta(max_length=64)] = []
    certificate: Short = ""
    """The common name of the certificate that proves this user; empty: no certificate does."""


class Rule(msgspec.Struct, frozen=True, array_like=True, order=True):
    """``who`` is the name of a user, ``role:NAME`` or ``anyone``; ``pattern`` is as of topics, ``#`` for all."""

    who: Name
    style: Name
    pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_CHARS_MAX)]
    verb: Name


class Token(msgspec.Struct, frozen=True, array_like=True):
    id: Name
    user: Name
    digest: bytes
    until_us: Number


class PutUser(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Set a user to this state; with ``same_password`` the earlier password stays."""

    user: User
    same_password: bool = False


class DropUser(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The user is gone, with its tokens and its own rules."""

    name: Name


class PutRule(msgspec.Struct, frozen=True, array_like=True, tag=3):
    rule: Rule


class DropRule(msgspec.Struct, frozen=True, array_like=True, tag=4):
    rule: Rule


class PutToken(msgspec.Struct, frozen=True, array_like=True, tag=5):
    token: Token


class DropToken(msgspec.Struct, frozen=True, array_like=True, tag=6):
    id: Name


Command = PutUser | DropUser | PutRule | DropRule | PutToken | DropToken


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    status: int
    reason: str = ""
    version: int = 0


class Copy(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """From a member that serves clients: the whole list, if its version is not this one; else nothing."""

    version: int = -1


class Show(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The list for people to read: without anything by which a secret could be guessed."""


Question = Copy | Show


class Listed(msgspec.Struct, frozen=True, array_like=True):
    """An access list of one version. It is in force as soon as it has a user or a rule."""

    version: int = 0
    users: list[User] = []
    rules: list[Rule] = []
    tokens: list[Token] = []


# Between a client and its member.


class Login(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The identity of a client: a user and its password, or a token. The answer is the name of the user."""

    user: Short = ""
    password: Secretive = ""
    token: Secretive = ""


class Change(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """One of ``Command``, encoded. The answer, an ``Outcome``, comes when no door uses the list of before. ``number``
    is drawn for this change alone: if the change is repeated with it after a break, it is made once."""

    command: bytes
    number: Number


class Look(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The list, as ``Show`` has it."""


class Check(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Asks whether a user may do something."""

    who: Name
    style: Name
    destination: Text
    verb: Name


class Mine(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Asks for the user of this connection; the answer is a name, empty if the client has not logged in."""


WORDS = Words(
    "access",
    {Login: str, Change: Outcome, Look: Listed, Check: bool, Mine: str},
    rights={
        Login: "who logs in has no rights yet",
        Change: lambda asked: [("access", "list", "manage")],
        Look: lambda asked: [("access", "list", "browse")],
        Check: lambda asked: [("access", "list", "browse")],
        Mine: "it tells the asker about itself alone",
    },
)

RIGHTS = MachineRights(
    "access",
    MACHINE,
    MACHINE,
    dict.fromkeys((PutUser, DropUser, PutRule, DropRule, PutToken, DropToken)),
    dict.fromkeys((Copy, Show)),
    makes=None,
    single="list",
)
"""Clients do not use the machine: a member asks for them, and records the user's name (``Change``)."""

encode = msgspec.msgpack.Encoder().encode
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_question: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
listed_of = msgspec.msgpack.Decoder(Listed).decode


def command_of(data: bytes) -> Command:
    try:
        return _command.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a change of the access list that no release makes: {error}") from None


def question_of(data: bytes) -> Question:
    try:
        return _question.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a question about access that no release asks: {error}") from None


def told(command: Command) -> str:
    """A change in words, for the audit log, without any secret."""
    if isinstance(command, PutUser):
        roles = ", ".join(command.user.roles) or "none"
        what = "password as before" if command.same_password else "password" if command.user.password else "no password"
        proof = f", certificate {command.user.certificate!r}" if command.user.certificate else ""
        return f"add user {command.user.name}: roles {roles}; {what}{proof}"
    if isinstance(command, DropUser):
        return f"remove user {command.name}"
    if isinstance(command, PutRule | DropRule):
        rule = command.rule
        verb = "add" if isinstance(command, PutRule) else "remove"
        return f"{verb} rule {rule.who} {rule.style}:{rule.pattern} {rule.verb}"
    if isinstance(command, PutToken):
        return f"add token {command.token.id} of user {command.token.user}"
    return f"remove token {command.id}"
