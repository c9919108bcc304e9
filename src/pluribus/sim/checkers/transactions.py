"""Transactions that move tokens: none is halved, none sees what another has not committed, and there is an order of all
of them in which each found what the one before left.

Clients write down ``token`` at the beginning, and of each transaction ``committed`` or ``refused`` with its receipt:
its number, and the tokens that it moved with how often each had been moved. At the end keepers write down ``left`` (a
token) and ``receipt`` for every message that is in their queues.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import msgspec

from ...core.errors import Violation
from ..machinery.history import History

Receipt = tuple[int, list[tuple[int, int]]]
_receipt = msgspec.msgpack.Decoder(Receipt).decode
_token = msgspec.msgpack.Decoder(tuple[int, int]).decode


def _receipts(history: History) -> dict[int, list[Receipt]]:
    """By keeper."""
    found: dict[int, list[Receipt]] = {}
    for h in history.of("receipt"):
        found.setdefault(h.id[1], []).append(_receipt(h.body))
    return found


def nothing_halved(history: History) -> int:
    """Every token is in one place, and was moved as often as receipts say; receipts are those of transactions that were
    committed, each once."""
    tokens = {h.id[0] for h in history.of("token")}
    committed = sorted(h.id[0] for h in history.of("committed"))
    left: dict[int, list[tuple[int, int]]] = {}
    for h in history.of("left"):
        left.setdefault(h.id[1], []).append(_token(h.body))
    receipts = _receipts(history)
    checks = 0
    for keeper, there in left.items():
        checks += len(there)
        numbers = sorted(token for token, _ in there)
        if numbers != sorted(tokens):
            lost, twice = tokens - set(numbers), {one for one in numbers if numbers.count(one) > 1}
            raise Violation(
                f"at keeper {keeper} tokens {sorted(lost)[:5]} are lost, and {sorted(twice)[:5]} are there twice"
            )
        kept = receipts.get(keeper, [])
        if sorted(id for id, _ in kept) != committed:
            raise Violation(f"keeper {keeper} has {len(kept)} receipts of {len(committed)} transactions")
        moves: dict[int, int] = {}
        for _, moved in kept:
            for token, _ in moved:
                moves[token] = moves.get(token, 0) + 1
        wrong = [token for token, times in there if moves.get(token, 0) != times]
        if wrong:
            raise Violation(f"at keeper {keeper} tokens {wrong[:5]} were not moved as often as receipts say")
    return checks


def one_after_another(history: History) -> int:
    """No update is lost: each version of a token was read by one transaction. And there is an order of all of them:
    who read what another wrote comes behind it, and that has no cycle."""
    checks = 0
    for keeper, kept in _receipts(history).items():
        readers: dict[tuple[int, int], int] = {}
        for id, moved in kept:
            for version in moved:
                checks += 1
                if version in readers:
                    raise Violation(
                        f"at keeper {keeper} transactions {readers[version]} and {id} both moved token {version[0]} "
                        f"for the {version[1] + 1}. time"
                    )
                readers[version] = id
        before = {
            id: {readers[token, times - 1] for token, times in moved if times and (token, times - 1) in readers}
            for id, moved in kept
        }
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            raise Violation(f"transactions {error.args[1][:5]} each come behind another: there is no order") from None
    return checks


def seen_when_committed(history: History) -> int:
    """Nobody moved what a transaction wrote that was refused or aborted."""
    refused = {h.id[0] for h in history.of("refused")}
    checks = len(refused)
    for kept in _receipts(history).values():
        for id, _ in kept:
            checks += 1
            if id in refused:
                raise Violation(f"transaction {id} was refused or aborted, and its receipt is there")
    return checks
