"""``python -m tests.core.every_tree [MEMBERS [JOBS]]``: the tree of every length up to 2,000, every root and every k.

The walk of ``core.tree`` is made from all roots at once: where a number stands for the root there is an array of all of
them, so each step of the walk is one operation on as many trees as the list has members. From the root 0 it is checked
member by member that each is reached once, by one that has the message, in the least number of steps. From every other
root each sending must be that one, shifted around the list; a shift is a permutation, so what holds for one holds for
all. Sixteen million trees, twenty-one thousand million sendings, in some minutes.
"""

import sys
from multiprocessing import Pool

import numpy

from pluribus.core.tree import AT_A_TIME_MAX, median, reached, steps


def walk(size: int, k: int) -> int:
    """How many roots were tried; an ``AssertionError`` names the first tree that is wrong."""
    roots = numpy.arange(size, dtype=numpy.int16)
    ring = numpy.arange(2 * size, dtype=numpy.int16) % numpy.int16(size)
    has_at = {0: 0}
    sent: dict[int, int] = {}
    for senders, targets in reached(size, roots, median(k)):
        sender, target = int(senders[0]), int(targets[0])
        turn = sent[sender] = sent.get(sender, -1) + 1
        assert sender in has_at and target not in has_at, (size, k)
        has_at[target] = has_at[sender] + turn // k + 1
        assert numpy.array_equal(targets, ring[target : target + size]), (size, k, target)
        assert numpy.array_equal(senders, ring[sender : sender + size]), (size, k, sender)
    assert len(has_at) == size and max(has_at.values()) == steps(size - 1, k), (size, k)
    return size


def every_length(k: int, members: int) -> int:
    return sum(walk(size, k) for size in range(1, members + 1))


def main(members: int = 2_000, jobs: int = 1) -> None:
    ks = range(1, AT_A_TIME_MAX + 1)
    with Pool(jobs) as pool:
        for k, trees in zip(ks, pool.starmap(every_length, [(k, members) for k in ks], chunksize=1), strict=True):
            print(f"k = {k}: every list of up to {members:,} members, from every root: {trees:,} trees", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
