"""Transactions on a bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..style import Styled

if TYPE_CHECKING:  # loaded when first used, so that ``import pluribus`` stays quick
    from .transaction import Transaction
    from .transactions import TransactionInfo

TIMEOUT_S = 60.0


class TransactionsFace:
    """Transactions: messages, events and tuples that come and go together, or not at all."""

    def transaction(self: Styled, *, timeout: float = TIMEOUT_S, join: int = 0) -> Transaction:
        """``async with bus.transaction() as tx:``, over durable queues, durable topics and durable replicated spaces.

        Everything that is sent, published, received and taken through ``tx`` is committed when the block ends well; if
        the block raises, the transaction is aborted, as if nothing had been done. After ``timeout`` seconds a
        transaction that was not committed is aborted (``TransactionEnded``). ``join`` is the ``tx.id`` of a transaction
        that another process began: this process acts in it, and the other one commits it.
        """
        from .transactions import TransactionsStyle

        return self._style(TransactionsStyle).begin(timeout, join)

    async def transactions(self: Styled, *, prepared: bool = False) -> list[TransactionInfo]:
        """Transactions in which several processes act, or that are prepared and wait for a decision."""
        from .transactions import TransactionsStyle

        return await self._style(TransactionsStyle).listed(prepared)

    async def transaction_state(self: Styled, id: int) -> str:
        """The state of a transaction: ``committed``, ``aborted``, ``prepared``, ``acting``; or ``unknown``: it was not
        committed, or a hundred thousand others have ended since."""
        from .transactions import TransactionsStyle

        return (await self._style(TransactionsStyle).shown(id)).state

    async def resolve_transaction(self: Styled, id: int, *, commit: bool) -> None:
        """Commit or abort a prepared transaction. ``TransactionEnded`` if it is not prepared, or the other decision was
        made."""
        from .transactions import TransactionsStyle

        await self._style(TransactionsStyle).resolve(id, commit)
