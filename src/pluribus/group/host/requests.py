"""What a program asks about one machine: the same words for machines on the keepers' log and in a group's memory.

Commands can be asked for again after any break: a machine does each once, because it has an identity or says in full
what is wanted. All other questions change nothing.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...wire.asking import WAIT_S_MAX, Need, Words
from ..requests import group_need
from ..sessions import SessionEntry
from . import rights
from .words import Number, Outcome, Text

ORDER_COMMANDS_MAX = 65_536
GIVEN_BYTES = 1 << 20
ANSWER_BYTES = 2 << 20
"""Bodies in one answer, if it has more than one."""


class Make(msgspec.Struct, array_like=True, frozen=True, tag=31):
    """A machine of this kind, in this version at least; made if it is not there. The answer is its number."""

    name: Text
    kind: Text
    version: Number = 1


class Order(msgspec.Struct, array_like=True, frozen=True, tag=32):
    """Commands, to be ordered together in one row; the answer is the result of each."""

    name: Text
    commands: Annotated[list[bytes], msgspec.Meta(min_length=1, max_length=ORDER_COMMANDS_MAX)]


class Examine(msgspec.Struct, array_like=True, frozen=True, tag=33):
    """A question to the machine, which changes nothing; the answer is bytes. ``stale``: answered from what is applied
    at the member or keeper that is asked."""

    name: Text
    question: bytes
    stale: bool = False
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX)] = 0.0
    """Seconds for which a question is held while its answer is empty; commands may change the answer meanwhile."""


class Resolve(msgspec.Struct, array_like=True, frozen=True, tag=34):
    """Bodies by handle (``bodies.py``); None for those that are gone. The answer ends early where it becomes too large:
    ask for the others."""

    name: Text
    handles: Annotated[list[tuple[Number, Number, Number]], msgspec.Meta(max_length=65_536)]


class Await(msgspec.Struct, array_like=True, frozen=True, tag=35):
    """The assignments of a consumer behind this number, as soon as there are any; the answer is ``Told``. While the
    question waits, the owner's lease does not end."""

    name: Text
    consumer: Number
    epoch: Number
    after: Number
    bytes_max: Number = GIVEN_BYTES
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX)] = WAIT_S_MAX


class Transact(msgspec.Struct, array_like=True, frozen=True, tag=36):
    """Commands of several machines of one log, all of them or none, once: the session and the sequence are its
    identity, and the caller has the answers to all sequences below ``settled``. The answer is an ``Outcome`` of the
    host."""

    session: Number
    sequence: Number
    settled: Number
    parts: Annotated[list[tuple[Text, list[bytes]]], msgspec.Meta(min_length=1, max_length=1_024)]


class Fetch(msgspec.Struct, array_like=True, frozen=True, tag=37):
    """The bodies of an assignment from the ``first`` on, which ``Told`` left out: as many as fit in one answer. None in
    the place of one that is lost. No bodies: the consumer does not hold the thing any more. The lease goes on."""

    name: Text
    consumer: Number
    epoch: Number
    thing: Number
    number: Number
    first: Number


MachineRequest = Make | Order | Examine | Resolve | Await | Fetch | Transact


class InMemory(msgspec.Struct, array_like=True, frozen=True, tag=40):
    """From a client to its member: a question about a machine that is in the memory of a group's members. The answer is
    the answer to that question, encoded."""

    group: Text
    kind: Text
    request: MachineRequest


class Given(msgspec.Struct, array_like=True, frozen=True):
    """A thing that a consumer was given."""

    thing: int
    delivery: int
    number: int
    """The number of the assignment; the consumer asks for assignments behind it."""
    note: bytes
    """What the machine says of the thing (``Machine.told``)."""
    bodies: list[bytes | None]
    left_out: int = 0
    """Bodies that are too large to be told with it: the consumer fetches them."""


class Told(msgspec.Struct, array_like=True, frozen=True):
    """What a consumer was given; ``ended``: it is not attached in this epoch any more."""

    given: list[Given]
    ended: bool = False


class Open(msgspec.Struct, array_like=True, frozen=True, tag=41):
    """A machine of this kind, in this version at least; made if it is not there. The answer is its number."""

    name: Text
    kind: Text
    version: Number


class Call(msgspec.Struct, array_like=True, frozen=True, tag=42):
    """A command of a machine, with its identity (``group.sessions.Command``); the answer is an ``SessionEntry``."""

    name: Text
    command: bytes


class Inspect(msgspec.Struct, array_like=True, frozen=True, tag=43):
    """A question to a machine, which changes nothing; the answer is bytes. None: only see that all is applied."""

    name: Text
    question: bytes | None
    stale: bool = False


WORDS = Words(
    "machines",
    {
        Make: int,
        Order: list[msgspec.Raw],
        Examine: bytes,
        Resolve: list[bytes | None],
        Await: Told,
        Fetch: list[bytes | None],
        Transact: Outcome,
        InMemory: msgspec.Raw,
        Open: int,
        Call: SessionEntry,
        Inspect: bytes,
    },
    rights={
        Make: rights.made,
        Order: lambda asked: rights.ordered(asked.name, asked.commands),
        Examine: rights.examined,
        Resolve: rights.resolved,
        Await: rights.awaited,
        Fetch: rights.awaited,
        Transact: lambda asked: rights.transacted(asked.parts),
        InMemory: lambda asked: _in_memory(asked),
        Open: lambda asked: rights.replicated(asked.name, "any"),
        Call: lambda asked: rights.replicated(asked.name, "call"),
        Inspect: lambda asked: rights.replicated(asked.name, "read|call"),
    },
)


def _in_memory(asked: InMemory) -> list[Need]:
    """As on the keepers; the group must be the machine's own, or one that the client may join."""
    needs = list(WORDS.rights[type(asked.request)](asked.request))  # type: ignore[operator]
    name = None if isinstance(asked.request, Transact) else asked.request.name
    return needs if asked.group == name else [*needs, group_need(asked.group, "join")]
