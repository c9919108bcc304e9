"""The commands of the list of transactions in its log, and their answers.

Every command names the whole state that it asks for, so that it may come twice.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.errors import MalformedFrame
from ..core.limits import NAME_CHARS_MAX
from ..group.host.rights import MachineRights, transacted
from ..wire.asking import Need

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Id = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Parts = Annotated[list[tuple[Name, list[bytes]]], msgspec.Meta(max_length=1_024)]
"""Commands by machine."""

DONE, AGAIN, REFUSED, ENDED = 0, 1, 2, 3

UNKNOWN, ACTING, PREPARED, COMMITTED, ABORTED = "unknown", "acting", "prepared", "committed", "aborted"


class Join(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A process acts in the transaction, which is known from now on; its lease begins anew."""

    id: Id
    lease_us: Annotated[int, msgspec.Meta(ge=1, le=1 << 60)]


class Put(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """All actions of one process in the transaction, to be done when it is committed."""

    id: Id
    actor: Id
    parts: Parts


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The transaction does not end by its lease any more. ``commit`` and ``abort`` are the changes in other machines
    for each decision. In a transaction only."""

    id: Id
    version: Number
    commit: Parts
    abort: Parts


class Commit(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The transaction is committed. ``version``: actions of others up to this version are part of the commit. In a
    transaction only."""

    id: Id
    version: Number = 0


class Abort(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The transaction is aborted, as if it had not been. A prepared one is aborted in a transaction only, with
    ``prepared``."""

    id: Id
    prepared: bool = False


Command = Join | Put | Prepare | Commit | Abort


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    status: int
    reason: str = ""


class Show(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """One transaction; the answer is ``Shown``."""

    id: Id


class List(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Transactions that have not ended; the answer is a list of ``Shown`` without parts."""

    prepared: bool = False


Question = Show | List


class Shown(msgspec.Struct, frozen=True, array_like=True):
    id: int
    state: str
    version: int = 0
    since_us: int = 0
    until_us: int = 0
    parts: list[tuple[str, list[bytes]]] = []
    """Of an acting one: the actions of other processes. Of a prepared one: the changes of a commit."""
    abort: list[tuple[str, list[bytes]]] = []
    machines: list[str] = []


encode = msgspec.msgpack.Encoder().encode
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_question: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)


def command_of(data: bytes) -> Command:
    try:
        return _command.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedFrame(f"a command about transactions that no release gives: {error}") from None


def question_of(data: bytes) -> Question:
    try:
        return _question.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedFrame(f"a question about transactions that no release asks: {error}") from None


# Rights.

ACT: Need = ("transaction", "all", "act")


def _carries(data: bytes, name: str) -> set[Need]:
    """Actions that are put into a transaction are done by the committing process: the process that puts them there
    needs the rights as well."""
    command = command_of(data)
    if isinstance(command, Put):
        return {ACT, *transacted(command.parts)}
    assert isinstance(command, Prepare)
    return {ACT, *transacted(command.commit), *transacted(command.abort)}


RIGHTS = MachineRights(
    "transaction",
    "transactions",
    "transactions",
    {Join: "act", Put: _carries, Prepare: _carries, Commit: "act", Abort: "act"},
    {Show: "act", List: "browse"},
    single="all",
)
