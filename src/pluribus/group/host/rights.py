"""The rights that a client needs for questions about machines, where there is an access list (``docs/access.md``).

A machine belongs to a style by its name: ``queue.orders`` is the queue ``orders``. The style says which verb each of
its commands and questions needs (``MachineRights``). Commands are told apart by their tag, without decoding them; a
command that is encoded in another way is refused. A machine with a name of no style is ``machine:NAME``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from ...wire.asking import ANY, MEMBERS_ONLY, Need
from ..sessions import Command

Verb = str | Callable[[bytes, str], Iterable[Need]] | None
"""A verb; or a function from a command and its destination to all needs; None: clients may not send it."""

_ARRAY, _ARRAY_END = 0x90, 0xA0
_NUMBER_END = 0x80


class MachineRights:
    """How one style names its machines and the rights to them; making one registers it. Names begin with ``prefix``;
    with ``single``, ``prefix`` is the whole name, and ``single`` is the destination."""

    def __init__(
        self,
        style: str,
        prefix: str,
        kind: str,
        commands: Mapping[type, Verb],
        questions: Mapping[type, Verb],
        *,
        batch: Verb = None,
        awaits: Verb = None,
        bodies: Verb = None,
        makes: Verb = ANY,
        identified: bool = False,
        single: str = "",
    ) -> None:
        self.style = style
        self.prefix = prefix
        self.kind = kind
        self.commands = commands
        self.questions = questions
        self.batch = batch
        self.awaits = awaits
        self.bodies = bodies
        self.makes = makes
        self.identified = identified
        self.single = single
        self._commands = {tag_of(word): verb for word, verb in commands.items()}
        self._questions = {tag_of(word): verb for word, verb in questions.items()}
        of_styles[prefix] = self
        rights_of.cache_clear()

    def needs(self, destination: str, command: bytes) -> Iterable[Need]:
        if self.identified:
            call = Command.decoded(command)
            if call is None:
                return (MEMBERS_ONLY,)
            command = call.command
        if command[:1] == b"\xc1":
            return self.need(self.batch, command, destination)
        return self.need(self._commands.get(_tag(command)), command, destination)

    def asks(self, destination: str, question: bytes) -> Iterable[Need]:
        return self.need(self._questions.get(_tag(question)) if question else ANY, question, destination)

    def need(self, verb: Verb, word: bytes, destination: str) -> Iterable[Need]:
        if verb is None:
            return (MEMBERS_ONLY,)
        return ((self.style, destination, verb),) if isinstance(verb, str) else verb(word, destination)


of_styles: dict[str, MachineRights] = {}
"""By the beginning of the names of their machines."""
loading: list[Callable[[], object]] = []
"""Called once, before the first look: styles may register theirs."""


def tag_of(word: type) -> int:
    tag = getattr(word, "__struct_config__").tag  # noqa: B009 - mypy does not know it of a type
    assert isinstance(tag, int) and 0 <= tag < _NUMBER_END
    return tag


def _tag(word: bytes) -> int:
    """Of a struct as we write it; -1 otherwise."""
    return word[1] if len(word) > 1 and _ARRAY <= word[0] < _ARRAY_END and word[1] < _NUMBER_END else -1


@lru_cache(4_096)
def rights_of(name: str) -> tuple[MachineRights | None, str]:
    """The style that a machine belongs to, and its destination there."""
    while loading:
        loading.pop()()
    for prefix, rights in of_styles.items():
        if rights.single:
            if name == prefix:
                return rights, rights.single
        elif name.startswith(prefix) and len(name) > len(prefix):
            return rights, name[len(prefix) :]
    return None, name


def ordered(name: str, commands: Iterable[bytes]) -> set[Need]:
    rights, destination = rights_of(name)
    if rights is None:
        return {("machine", destination, "change")}
    return {need for command in commands for need in rights.needs(destination, command)}


def transacted(parts: Iterable[tuple[str, Iterable[bytes]]]) -> set[Need]:
    return {need for name, commands in parts for need in ordered(name, commands)}


def made(asked: Any) -> Iterable[Need]:
    rights, destination = rights_of(asked.name)
    if rights is None:
        return (("machine", destination, "change"),)
    return rights.need(rights.makes if asked.kind == rights.kind else None, b"", destination)


def examined(asked: Any) -> Iterable[Need]:
    rights, destination = rights_of(asked.name)
    if rights is None:
        return (("machine", destination, "read"),)
    return rights.asks(destination, asked.question)


def resolved(asked: Any) -> Iterable[Need]:
    rights, destination = rights_of(asked.name)
    return (("machine", destination, "read"),) if rights is None else rights.need(rights.bodies, b"", destination)


def awaited(asked: Any) -> Iterable[Need]:
    rights, destination = rights_of(asked.name)
    return (("machine", destination, "change"),) if rights is None else rights.need(rights.awaits, b"", destination)


def replicated(name: str, verb: str) -> Iterable[Need]:
    """The need for a user's own machine, whose name is of no style."""
    rights, destination = rights_of(name)
    return (MEMBERS_ONLY,) if rights is not None else (("replica", destination, verb),)
