"""Which member sends to which: the arithmetic of spreading along one ordered list, as pure functions.

Theory of operation
-------------------
All members have the same list. A member that has a message is responsible for a *sub-list*: members that follow each
other in the list, around its end if need be. It picks some of them, gives each the message and a part of the sub-list,
and these do the same with their parts. Every member of the sub-list is in exactly one part, so nobody is reached twice,
and a member needs to be told only where its part begins and how long it is.

A *shape* says how a sub-list is taken apart. Three families:

``median(k)``     the source's algorithm (Jafarpour and Yazdani 2003, figure 2), for senders that send k at a time. The
                  owner and its sub-list are cut into k + 1 sections of equal size. The first member of each other
                  section gets the message and the rest of that section, and the owner goes on with its own section.
                  Every member with the message sends at every step, so after each step k + 1 times as many have it:
                  ceil(log(n) / log(k + 1)) steps, the fewest possible. With k = 1 it is the paper's doubling.
``balanced(d)``   nobody sends more than d times, however many members there are. A message that is cut into pieces
                  flows through it like water: the first piece needs more steps, but the bytes on the busiest line are
                  d messages and not log n.
``FLAT``          one by one: the owner sends to all of them.

The source names a sub-list by its two ends, so an empty sub-list and one that goes all the way round look alike. Here a
sub-list is named by its beginning and its length, which may be 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

Shape = int
"""A number that travels: 0 is flat, 1 to 8 are median(k), 9 to 16 are balanced(d)."""

FLAT: Shape = 0
AT_A_TIME_MAX = 8
SHAPE_MAX: Shape = 2 * AT_A_TIME_MAX

Part = tuple[int, int]
"""The member that gets the message, counted from the beginning of the sub-list, and the length of its own sub-list,
which follows it."""


def median(at_a_time: int = 1) -> Shape:
    """The doubling tree; ``at_a_time`` is how many a member can send at once."""
    assert 1 <= at_a_time <= AT_A_TIME_MAX
    return at_a_time


def balanced(degree: int = 2) -> Shape:
    """A tree in which nobody has more than so many children; 1 is a chain."""
    assert 1 <= degree <= AT_A_TIME_MAX
    return AT_A_TIME_MAX + degree


@lru_cache(maxsize=8_192)
def parts(count: int, shape: Shape) -> tuple[Part, ...]:
    """How the owner of a sub-list of ``count`` members takes it apart, in the order in which it sends.

    The parts and the members that get them cover the sub-list, each member once. The longest part is sent first.
    """
    if shape == FLAT:
        return tuple((at, 0) for at in range(count))
    if shape > AT_A_TIME_MAX:
        return _balanced(count, shape - AT_A_TIME_MAX)
    return _median(count, shape)


def _median(count: int, at_a_time: int) -> tuple[Part, ...]:
    found: list[Part] = []
    while count > 2 * at_a_time:
        size, longer = divmod(count + 1, at_a_time + 1)  # the owner is one of them, at the front
        at = size - 1
        section: list[Part] = []
        for place in range(at_a_time):
            length = size + (place >= at_a_time - longer)
            section.append((at, length - 1))
            at += length
        found += reversed(section)
        count = size - 1
    found += [(at, 0) for at in range(count)]
    return tuple(found)


def _balanced(count: int, degree: int) -> tuple[Part, ...]:
    size, longer = divmod(count, degree)
    found: list[Part] = []
    at = 0
    for place in range(min(degree, count)):
        length = size + (place < longer)
        found.append((at, length - 1))
        at += length
    return tuple(found)


def steps(count: int, at_a_time: int = 1) -> int:
    """The number of steps to reach so many others if every member sends to ``at_a_time`` others at each step; no tree
    is faster."""
    reached, needed = 1, 0
    while reached <= count:
        reached *= at_a_time + 1
        needed += 1
    return needed


class Place:
    """One member's place in the tree of a list: who gives it the message, and to whom it passes it on."""

    __slots__ = ("children", "parent")

    def __init__(self, parent: int, children: tuple[int, ...]) -> None:
        self.parent = parent
        """Its index in the list; that of the root is -1."""
        self.children = children


def place(size: int, root: int, me: int, shape: Shape) -> Place:
    """Where ``me`` is when ``root`` spreads to a list of that size. Costs the depth of the tree, not its size."""
    first, count, owner, parent = root + 1, size - 1, root, -1
    while owner != me:
        offset = (me - first) % size
        head, length = _part_with(offset, parts(count, shape))
        parent, owner = owner, (first + head) % size
        first, count = first + head + 1, length
    children = tuple((first + head) % size for head, _ in parts(count, shape))
    return Place(parent, children)


def _part_with(offset: int, among: tuple[Part, ...]) -> Part:
    return next(part for part in among if part[0] <= offset <= part[0] + part[1])


def reached(size: int, root: int, shape: Shape) -> Iterator[tuple[int, int]]:
    """Every transmission of one spread as (from, to); those of one sender in the order in which it sends."""
    waiting = [(root, root + 1, size - 1)]
    while waiting:
        owner, first, count = waiting.pop()
        for head, length in parts(count, shape):
            child = (first + head) % size
            yield owner, child
            waiting.append((child, first + head + 1, length))
