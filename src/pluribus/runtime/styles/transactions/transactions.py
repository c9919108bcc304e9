"""The transactions of one bus: the line to their list, and the one command that does them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ....core.errors import BadInput, PluribusError, Refused, TransactionEnded
from ....group.host import words as host
from ....transactions import words
from ....transactions.machine import Transactions
from ....transactions.words import ABORTED, COMMITTED, PREPARED, Outcome, Shown
from ...machines.line import MachineLine
from ...machines.machines import Machines
from ..style import Style
from .transaction import Transaction

MACHINE = "transactions"
ASK_S = 15.0
TIMEOUT_S_MAX = 86_400.0

Parts = Sequence[tuple[str, Sequence[bytes]]]


class TransactionInfo(msgspec.Struct, frozen=True):
    """A transaction that has not ended. ``since`` and ``until`` are seconds since 1970, by the time of the log."""

    id: int
    state: str
    since: float
    until: float
    machines: list[str]
    """The machines in which it acts."""


class TransactionsStyle(Style):
    """The transactions of one bus."""

    on_clients: ClassVar[str] = "pluribus.runtime.styles.transactions.transactions:TransactionsStyle"
    closes: ClassVar[int] = 30

    def __init__(self, bus: Any) -> None:
        super().__init__(bus)
        self._line: MachineLine[Outcome] | None = None
        self._opening = asyncio.Lock()
        self._session = 0
        self._next = 0
        self._open: dict[int, None] = {}
        """Commands that are not answered."""
        self._acting: dict[Transaction, None] = {}

    def begin(self, timeout: float, join: int) -> Transaction:
        if not 0 < timeout <= TIMEOUT_S_MAX:
            raise BadInput(f"timeout={timeout!r}: give seconds, from 0 to {TIMEOUT_S_MAX:,.0f}")
        if join < 0:
            raise BadInput(f"join={join!r} is no transaction: give the id of one")
        return Transaction(self, join or self.bus.durable.new_number(), timeout, bool(join))

    async def line(self) -> MachineLine[Outcome]:
        async with self._opening:
            if self._line is None:
                machines: Machines = self.bus._style(Machines)
                self._line = await machines.open(MACHINE, Transactions, Outcome, timeout=ASK_S)
                self._session = self.bus.durable.new_number()
            return self._line

    def number(self) -> int:
        """A number for a command that is done once, however often it is repeated."""
        self._next += 1
        self._open[self._next] = None
        return self._next

    async def do(self, number: int, parts: Parts, timeout: float | None) -> host.Outcome:
        line = await self.line()
        outcome = await line.transact(self._session, number, next(iter(self._open), number), parts, timeout)
        self._open.pop(number, None)
        return outcome

    async def tell(self, command: words.Command, timeout: float | None = ASK_S) -> Outcome:
        outcome = await (await self.line()).call(words.encode(command), timeout)
        if outcome.status == words.REFUSED:
            raise Refused(outcome.reason)
        return outcome

    async def shown(self, id: int, timeout: float | None = ASK_S) -> Shown:
        line = await self.line()
        return msgspec.msgpack.decode(await line.inspect(words.encode(words.Show(id)), timeout=timeout), type=Shown)

    async def listed(self, prepared: bool) -> list[TransactionInfo]:
        line = await self.line()
        found = msgspec.msgpack.decode(
            await line.inspect(words.encode(words.List(prepared)), timeout=ASK_S), type=list[Shown]
        )
        return [
            TransactionInfo(one.id, one.state, one.since_us / 1e6, one.until_us / 1e6, one.machines) for one in found
        ]

    async def resolve(self, id: int, commits: bool, timeout: float | None = ASK_S) -> None:
        shown = await self.shown(id, timeout)
        wanted = COMMITTED if commits else ABORTED
        if shown.state == wanted:
            return
        if shown.state != PREPARED:
            raise TransactionEnded(f"transaction {id} is {shown.state}: only a prepared one is decided by hand")
        end: words.Command = words.Commit(id, shown.version) if commits else words.Abort(id, True)
        parts = [*(shown.parts if commits else shown.abort), (MACHINE, [words.encode(end)])]
        outcome = await self.do(self.number(), parts, timeout)
        if outcome.status == host.REFUSED and (await self.shown(id, timeout)).state != wanted:
            raise TransactionEnded(f"transaction {id} could not be {wanted}: {outcome.reason}")

    def began(self, transaction: Transaction) -> None:
        self._acting[transaction] = None

    def ended(self, transaction: Transaction) -> None:
        self._acting.pop(transaction, None)

    async def close(self) -> None:
        """Close. Transactions that were not committed are aborted."""
        for transaction in list(self._acting):
            try:
                await transaction.give_up()
            except PluribusError:
                transaction.abandon()

    def abandon(self) -> None:
        for transaction in list(self._acting):
            transaction.abandon()
