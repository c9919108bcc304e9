"""``python -m tests.core.every_tree [MEMBERS [EVERY_ROOT_UP_TO]]``: the walk of ``test_tree`` for every length and k.

Every root of lists of up to 300 members, and 16 roots all over longer ones, in some minutes. That a tree does not
depend on where its root is, but for the shift, is checked on the way: the walk from one root is that from another.
"""

import sys

from pluribus.core.tree import AT_A_TIME_MAX, median, reached, steps

ROOTS = 16


def walk(size: int, k: int, every_root_up_to: int) -> int:
    """How many roots were tried; an ``AssertionError`` names the first tree that is wrong."""
    shape = median(k)
    expected = list(reached(size, 0, shape))
    has_at = {0: 0}
    sent: dict[int, int] = {}
    for sender, target in expected:
        turn = sent[sender] = sent.get(sender, -1) + 1
        assert sender in has_at and target not in has_at, (size, k)
        has_at[target] = has_at[sender] + turn // k + 1
    assert len(has_at) == size and max(has_at.values()) == steps(size - 1, k), (size, k)
    roots = range(size) if size <= every_root_up_to else range(0, size, -(-size // ROOTS))
    for root in roots:
        shifted = [((sender + root) % size, (target + root) % size) for sender, target in expected]
        assert list(reached(size, root, shape)) == shifted, (size, k, root)
    return len(roots)


def main(members: int = 2_000, every_root_up_to: int = 300) -> None:
    for k in range(1, AT_A_TIME_MAX + 1):
        tried = sum(walk(size, k, every_root_up_to) for size in range(1, members + 1))
        print(f"k = {k}: every list of up to {members:,} members, {tried:,} roots", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
