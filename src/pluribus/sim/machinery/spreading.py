"""How long a message takes to reach all hosts, for so many hosts that no stack of layers could be run for each.

The same arithmetic as the protocols' (``core.tree``), on a model of the network: every host sends at a rate, one byte
after the other, and a datagram needs a while to arrive. A message that is longer than a datagram goes in pieces, and a
piece is passed on when it is there. No host fails and nothing is lost, so acknowledgements, which nobody waits for, are
left out. A test compares the model with whole stacks on the simulated network.

A hundred thousand hosts take a second or two: the work is one addition a host and piece, in no event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random

import msgspec

from ...core.tree import Shape, balanced, median, parts

PIECE_BYTES = 32_256
"""The bytes of a message that a datagram of 32 KiB carries."""
OVERHEAD_BYTES = 200
DIGEST_S = 0.05


class Line(msgspec.Struct, frozen=True):
    """The connection of a host to the others."""

    bytes_s: float = 12_500_000.0
    """100 Mbit/s."""
    latency_s: float = 0.000_15


class Spreading(msgspec.Struct, frozen=True):
    """The result for one message."""

    hosts: int
    seconds: float
    """Until the last host had all of it."""
    steps: int
    """Sendings one after the other, if each took the same time and everybody sent one at a time."""
    busiest_bytes: int
    """Bytes that the busiest host sent."""
    reached: float = 1.0
    """The share that had it without repair."""


def pieces(size: int) -> list[int]:
    """How long each datagram of a message is."""
    whole, rest = divmod(size, PIECE_BYTES)
    return [PIECE_BYTES + OVERHEAD_BYTES] * whole + ([rest + OVERHEAD_BYTES] if rest else [])


def by_multicast(hosts: int, size: int, line: Line = Line()) -> Spreading:  # noqa: B008 - it is frozen
    """The network copies it: one sending for all receivers."""
    sent = sum(pieces(size))
    return Spreading(hosts, sent / line.bytes_s + line.latency_s, 1, sent)


def by_tree(hosts: int, size: int, shape: Shape = median(), line: Line = Line()) -> Spreading:  # noqa: B008
    """Down any tree, one by one included; ``at_a_time`` of the shape counts for steps."""
    lengths = pieces(size)
    at_a_time = shape if 1 <= shape <= 8 else 1
    if len(lengths) == 1 and shape != balanced(1):  # which is a chain, as deep as there are hosts
        seconds, most_steps, widest = _below(hosts - 1, shape, at_a_time, lengths[0] / line.bytes_s, line.latency_s, {})
        return Spreading(hosts, seconds, most_steps, widest * lengths[0])
    last_s, most_steps, widest = 0.0, 0, 0
    waiting: list[tuple[int, list[float], int]] = [(hosts - 1, [0.0] * len(lengths), 0)]
    while waiting:
        count, arrivals, step = waiting.pop()
        if arrivals[-1] > last_s:
            last_s = arrivals[-1]
        if step > most_steps:
            most_steps = step
        if not count:
            continue
        shares = parts(count, shape)
        widest = max(widest, len(shares))
        for turn, ((_, length), child) in enumerate(
            zip(shares, _sent(arrivals, lengths, len(shares), line), strict=True)
        ):
            waiting.append((length, child, step + turn // at_a_time + 1))
    return Spreading(hosts, last_s, most_steps, widest * sum(lengths))


def _below(
    count: int, shape: Shape, at_a_time: int, each_s: float, latency_s: float, known: dict[int, tuple[float, int, int]]
) -> tuple[float, int, int]:
    """Of a host that has all of a message in one piece, and so many hosts below it: the seconds and steps until the
    last of them has it, and the most children of one host. Hosts with as many below them need the same."""
    if count not in known:
        shares = parts(count, shape) if count else []
        last_s, most_steps, widest = 0.0, 0, len(shares)
        for turn, (_, length) in enumerate(shares, 1):
            seconds, steps, children = _below(length, shape, at_a_time, each_s, latency_s, known)
            last_s = max(last_s, latency_s + each_s * turn + seconds)
            most_steps = max(most_steps, steps + (turn - 1) // at_a_time + 1)
            widest = max(widest, children)
        known[count] = (last_s, most_steps, widest)
    return known[count]


def _sent(arrivals: list[float], lengths: list[int], children: int, line: Line) -> Iterator[list[float]]:
    """When each piece is at each child: pieces go out in the order in which they came, to one child after another."""
    if len(lengths) == 1:
        each_s = lengths[0] / line.bytes_s
        first_s = arrivals[0] + line.latency_s
        return ([first_s + each_s * turn] for turn in range(1, children + 1))
    there: list[list[float]] = [[] for _ in range(children)]
    free_s = 0.0
    for arrived_s, length in zip(arrivals, lengths, strict=True):
        free_s = max(free_s, arrived_s)
        for child in there:
            free_s += length / line.bytes_s
            child.append(free_s + line.latency_s)
    return iter(there)


def by_gossip(hosts: int, size: int, fanout: int, random: Random, line: Line = Line()) -> Spreading:  # noqa: B008
    """A host that has the message sends it to ``fanout`` random others. Hosts that were left out find it by a digest
    after a while."""
    sent = sum(pieces(size))
    each_s = sent / line.bytes_s
    heard = bytearray(hosts)
    waiting: list[tuple[float, int, int]] = [(0.0, 0, 0)]
    last_s, most_steps, reached = 0.0, 0, 0
    while waiting:
        now_s, step, host = heappop(waiting)
        if heard[host]:
            continue
        heard[host] = 1
        reached += 1
        last_s, most_steps = now_s, max(most_steps, step)
        for turn in range(1, min(fanout, hosts - 1) + 1):
            other = int(random.random() * hosts)
            if not heard[other]:
                heappush(waiting, (now_s + each_s * turn + line.latency_s, step + turn, other))
    if reached < hosts:
        last_s += DIGEST_S + 2 * line.latency_s + each_s
    return Spreading(hosts, last_s, most_steps, min(fanout, hosts - 1) * sent, reached / hosts)
