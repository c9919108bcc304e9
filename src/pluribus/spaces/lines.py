"""Takes that wait, in line. All that wait with one template, in one transaction or in none, form one line.

``demand`` has the turns, the tuples that were handed over, and the leases; here are the templates of the waiting takes.
A new tuple finds the lines that want it by their templates (``Wishes``), and in each line the take whose turn it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..group.host.demand import CREDIT_MAX, Consumer, Demands
from ..group.host.parts import Parts
from .index import Wishes
from .kept import Waiter, WaitingLine
from .templates import Template
from .values import Item
from .words import Refused, Take, Waiting, encode

SHARDS = 32
BYTES_UNBOUNDED = 1 << 50
_SavedWaiter = tuple[Waiter, Template, int]


class WaitingLines:
    """``parts`` and ``demands`` are those of the machine that the lines belong to."""

    def __init__(self, parts: Parts, demands: Demands) -> None:
        self._parts = parts
        self._demands = demands
        self.waiters: dict[int, Waiter] = {}
        self._lines: dict[int, WaitingLine] = {}
        self._line_of: dict[tuple[Template, int], int] = {}
        self._wishes: Wishes[int] = Wishes()
        self._if_exist: dict[int, None] = {}
        """Takes that wait for hidden tuples only."""
        self.next_tag = 1

    def line(self, consumer: int) -> WaitingLine:
        return self._lines[self.waiters[consumer].tag]

    def join(self, command: Take) -> Refused | Waiting:
        if command.most > CREDIT_MAX or not command.consumer or not command.owner:
            return Refused("a take that waits needs a number of its own, and an owner")
        if command.consumer in self._demands.consumers:
            return Refused(f"the number {command.consumer} is taken: draw another")
        key = (command.template, command.transaction)
        tag = self._line_of.get(key)
        if tag is None:
            tag = self.next_tag
            self._parts.touch("numbers")
            self.next_tag += 1
            self._open(WaitingLine(tag, *key))
        consumer = self._demands.attach(command.consumer, command.owner, command.owner_lease_us, tag)
        if consumer is None:
            self._close_if_empty(tag)
            return Refused("100,000 takes and registrations are here already: wait for some of them")
        self._demands.demand(consumer.number, consumer.epoch, 1, command.most, BYTES_UNBOUNDED, command.most)
        self._touch(command.consumer)
        self.waiters[command.consumer] = Waiter(command.consumer, tag, command.if_exists)
        if command.if_exists:
            self._if_exist[command.consumer] = None
        self._lines[tag].waiters += 1
        return Waiting(consumer.epoch)

    def _open(self, line: WaitingLine) -> None:
        self._lines[line.tag] = line
        self._line_of[line.template, line.transaction] = line.tag
        self._wishes.add(line.tag, line.template)

    def _close_if_empty(self, tag: int) -> None:
        line = self._lines[tag]
        if not line.waiters:
            del self._lines[tag], self._line_of[line.template, line.transaction]
            self._wishes.remove(tag)

    def leave(self, consumer: int) -> Sequence[int]:
        """A waiting take is over; returns the tuples that it was handed, oldest first."""
        waiter = self.waiters.pop(consumer)
        self._if_exist.pop(consumer, None)
        self._touch(consumer)
        held = sorted(self._demands.detach(consumer))
        self._lines[waiter.tag].waiters -= 1
        self._close_if_empty(waiter.tag)
        return held

    def first_for(self, item: Item, writer: int) -> Consumer | None:
        """The take that has waited longest of those that may have an item; ``writer`` is the transaction that wrote it,
        if any."""
        best: Consumer | None = None
        for tag in self._wishes.of(item):
            if writer and self._lines[tag].transaction != writer:
                continue
            consumer = self._demands.next(tag)
            if consumer is not None and (best is None or consumer.turn < best.turn):
                best = consumer
        return best

    def of_transaction(self, transaction: int) -> list[int]:
        return sorted(one for one in self.waiters if self.line(one).transaction == transaction)

    def if_exists(self) -> list[int]:
        return sorted(self._if_exist)

    def _touch(self, consumer: int) -> None:
        self._parts.touch(f"waiters/{consumer % SHARDS:02d}")

    def part_names(self) -> list[str]:
        return [f"waiters/{shard:02d}" for shard in sorted({one % SHARDS for one in self.waiters})]

    def encode_part(self, name: str) -> bytes:
        shard = int(name.partition("/")[2])
        chosen = [self.waiters[one] for one in sorted(self.waiters) if one % SHARDS == shard]
        lines = [self._lines[waiter.tag] for waiter in chosen]
        return encode([(one, line.template, line.transaction) for one, line in zip(chosen, lines, strict=True)])

    def restore_part(self, data: bytes) -> None:
        for waiter, template, transaction in msgspec.msgpack.decode(data, type=list[_SavedWaiter]):
            self.waiters[waiter.consumer] = waiter
            if waiter.if_exists:
                self._if_exist[waiter.consumer] = None
            if waiter.tag not in self._lines:
                self._open(WaitingLine(waiter.tag, template, transaction))
            self._lines[waiter.tag].waiters += 1
