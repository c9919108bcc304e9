"""``pluribus bench semantic``: what a message costs in the semantic order, from a thousand messages to a million.

The layer is fed directly, so nothing else is measured. Messages come in three ways: a chain of answers in order, in
batches; chains that come backwards, so that all of a thousand wait for the last; trees, each message an answer to one
of the last thousand or to any earlier one, their streams mixed by chance. Streams are FIFO, as from the layer below.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from time import perf_counter
from typing import Any

from ..core.frame import Frame, Parents
from ..core.ports import Ports
from ..engines.inproc import InprocEngine
from ..layers.semantic import Semantic
from ..stack.events import Members, ViewChanged
from ..stack.layer import Node
from .report import Curve, Goal, Result, at_most, report, result

SIZES = (1_000, 10_000, 100_000, 1_000_000)
CHUNK = 10_000
"""Messages for which frames are made at a time, outside of the measured time."""
GROUP, ME = 1, 1
BATCH = 50
CHAIN = 1_000
SENDERS = 100

Make = Callable[[int, int, Random], Iterator[Frame]]


def run(*, quick: bool = False, progress: Callable[[str], None] = lambda text: None, **_: Any) -> dict[str, Any]:
    sizes = SIZES[:3] if quick else SIZES
    results: list[Result] = []
    goals: list[Goal] = []
    curves: list[Curve] = []
    for name, make in CASES.items():
        costs = []
        for size in sizes:
            progress(f"{name}, {size:,} messages")
            repeats = max(3 if quick else 5, 20_000 // size)
            costs.append(
                result(f"{name}, {size:,} messages", "ns/message", [cost_ns(make, size) for _ in range(repeats)])
            )
        results += costs
        points = [[float(size), cost.value] for size, cost in zip(sizes, costs, strict=True)]
        curves.append(Curve(name, "messages", "ns/message", points))
        ratio = costs[-1].value / costs[0].value
        goals.append(at_most(f"{name}: a message among {sizes[-1]:,} costs so many of one among 1,000", ratio, 2.0))
    return report("semantic", results, goals, curves)


def cost_ns(make: Make, size: int) -> float:
    layer = _alone()
    random = Random(size)
    seconds = 0.0
    for start in range(0, size, CHUNK):
        frames = list(make(start, min(CHUNK, size - start), random))
        up = layer.up
        began = perf_counter()
        for frame in frames:
            up(frame)
        seconds += perf_counter() - began
    missing = layer.stats()["waiting"]
    assert not missing and not layer.orphans, f"{missing} messages wait, {layer.orphans} are orphans"
    return seconds / size * 1e9


def _chain(start: int, count: int, random: Random) -> Iterator[Frame]:
    """Two members answer each other, batch by batch; within a batch each message answers the one before."""
    for at in range(start, start + count, BATCH):
        turn = at // BATCH
        sender, first = turn % 2 + 2, turn // 2 * BATCH
        other = (3 - turn % 2, (turn - 1) // 2 * BATCH + BATCH - 1)
        of = [other if turn else None, *((sender, number) for number in range(first, first + BATCH - 1))]
        yield _frame(sender, first, of)


def _backwards(start: int, count: int, random: Random) -> Iterator[Frame]:
    """All members send one message in turn, an answer to the one before; each round arrives in reverse."""
    for block in range(start, start + count, CHAIN):
        for at in reversed(range(block, block + CHAIN)):
            yield _frame(at % CHAIN + 2, at // CHAIN, [_place(at - 1, CHAIN)])


def _trees(start: int, count: int, random: Random) -> Iterator[Frame]:
    order = [at % SENDERS for at in range(start, start + count)]
    random.shuffle(order)
    following = [start // SENDERS] * SENDERS
    for sender in order:
        at = following[sender] * SENDERS + sender
        following[sender] += 1
        before = random.randrange(max(at - 1_000, 0) if random.random() < 0.5 else 0, at) if at else -1
        yield _frame(sender + 2, at // SENDERS, [_place(before, SENDERS)])


def _place(at: int, senders: int) -> tuple[int, int] | None:
    """The sender of the message at this place, and its number."""
    return (at % senders + 2, at // senders) if at >= 0 else None


def _frame(sender: int, first: int, of: list[tuple[int, int] | None]) -> Frame:
    bodies = [b"a message of some size"] * len(of)
    size = 22 * len(of)
    return Frame(
        sender=sender, group=GROUP, first=first, count=len(of), size=size, headers=[Parents(of)], bodies=bodies
    )


CASES: dict[str, Make] = {"a chain in order": _chain, "chains backwards": _backwards, "random trees": _trees}


def _alone() -> Semantic:
    """A semantic layer alone, with no layers around it."""
    layer = Semantic()
    layer.node = Node(ME, "bench", "bench")
    layer.ports = Ports(clock=_NoClock(), random=Random(0), engine=InprocEngine("bench"))
    layer.stimulus = lambda call: call()
    layer.pass_up = deque[Frame](maxlen=1).append
    layer.pass_down = lambda frame: None
    layer.tell_up = layer.tell_down = lambda event: None
    members = (ME, *range(2, CHAIN + 2))
    layer.event_up(ViewChanged(1, ME, members, primary=True))
    layer.event_up(Members(GROUP, members, {}, agreed=True, promises="semantic"))
    return layer


class _NoClock:
    """A clock that stands still, so that no wait ends."""

    def now(self) -> float:
        return 0.0

    elapsed = now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> _NoClock:
        return self

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Never."""

    def cancel(self) -> None:
        """Nothing is due."""
