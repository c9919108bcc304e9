"""Messages that a prepared transaction received: they are held for it, until it is decided.

A consumer that has the transaction's number and no lease holds them. It never asks for more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .words import Keep, Resolve

if TYPE_CHECKING:
    from .machine import Queue

NOBODY = 0
"""The owner without a lease that ends."""
ANY = 0


def keep(queue: Queue, command: Keep) -> None:
    """Move these messages from their consumer to the transaction."""
    demands = queue.demands
    keeper = demands.consumers.get(command.transaction)
    if keeper is None:
        keeper = demands.attach(command.transaction, NOBODY, 1, ANY)
        assert keeper is not None
    for first, count in command.acked:
        for thing in range(first, first + count):
            held = demands.settle(command.consumer, command.epoch, thing)
            assert held is not None
            queue.parts.touch("until")
            queue.messages.unlease(thing)
            demands.hold(keeper, thing, held.size, held.delivery)


def resolve(queue: Queue, command: Resolve) -> None:
    demands = queue.demands
    keeper = demands.consumers.get(command.transaction)
    if keeper is None or keeper.owner != NOBODY:
        return
    if command.commits:
        queue.messages.done(sorted(keeper.held))
        demands.detach(command.transaction)
        return
    held = demands.detach(command.transaction)
    for thing in sorted(held):
        queue.messages.back(thing, held[thing].delivery, False, 0)
