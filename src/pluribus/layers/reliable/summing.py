"""Acknowledgements of a large group, summed on their way: the sender hears a handful, not one a member.

Theory of operation
-------------------
In a group of more than ``sum_above`` members a receiver does not answer the sender. All members have the same list, so
each knows its place in a tree (``core.tree``) with the sender as root. It answers its parent, for its whole sub-tree,
with two numbers: the least that any member there has received, and the least for which any of them has room. Both only
grow, like plain acknowledgements, so they may be lost, repeated or reordered.

The sender counts only its own children in the tree; each of them stands for all members below it. A member that has not
heard from all its children says nothing, so a message that somebody lacks never counts as received. When a group
changes, the trees change too. Sums carry the stamp of the group's view, sums of another view are not counted, and the
sender starts again from what was stable.

Live: a sender that waits repeats its status to everybody, and everybody who hears it repeats its sum.
"""

from __future__ import annotations

from ...core.ids import ALL
from ...core.tree import Place, median, place
from .headers import Ack, Summed

SUM_ABOVE = 16


class Sum:
    """One stream's sums at one member."""

    __slots__ = ("below", "own", "said")

    def __init__(self) -> None:
        self.own = (0, 0, 0)
        self.below: dict[int, tuple[int, int, int]] = {}
        """By child: the least received and the least room in its sub-tree, and the member with that least room."""
        self.said = (0, 0, 0)


class Summing:
    """Which member answers which, and what each has said, in groups that are large enough."""

    def __init__(self, above: int) -> None:
        self._above = above
        self._order: dict[int, tuple[int, ...]] = {}
        self._places: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
        self._sums: dict[tuple[int, int], Sum] = {}

    def set_order(self, group: int, members: tuple[int, ...]) -> None:
        """The group's members, in the order that all of them have. Earlier sums are void."""
        if len(members) > self._above:
            self._order[group] = members
        else:
            self._order.pop(group, None)
        for known in [known for known in self._places if known[1] == group]:
            del self._places[known]
        for known in [known for known in self._sums if known[1] == group]:
            del self._sums[known]

    def large(self, group: int) -> bool:
        return group in self._order

    def applies(self, owner: int, group: int, me: int) -> bool:
        """Whether acknowledgements of this stream are summed, for this member."""
        order = self._order.get(group)
        return order is not None and owner in order and me in order

    def around(self, owner: int, group: int, me: int) -> tuple[int, tuple[int, ...]]:
        """The member that this one answers, and those that answer it. For its own stream it answers nobody, which is
        0."""
        known = self._places.get((owner, group))
        if known is None:
            order = self._order[group]
            found: Place = place(len(order), order.index(owner), order.index(me), median())
            parent = order[found.parent] if found.parent >= 0 else 0
            known = self._places[(owner, group)] = (parent, tuple(order[child] for child in found.children))
        return known

    def plain(self, ack: Ack, me: int) -> Ack:
        """The acknowledgement without those streams of this member that are answered by sums. A member that answers
        such a stream plainly is in another, smaller view of the group, and does not answer for members below it
        here."""
        if not self._order:
            return ack
        return Ack([each for each in ack.streams if each.to != ALL or not self.applies(me, each.group, me)])

    def drop(self, owner: int, group: int) -> None:
        self._sums.pop((owner, group), None)

    def own(self, owner: int, group: int, received: int, limit: int, me: int) -> Sum:
        """Note what this member has received itself, and its room."""
        found = self._sums.get((owner, group))
        if found is None:
            found = self._sums[(owner, group)] = Sum()
        found.own = (received, limit, me)
        return found

    def heard(self, child: int, word: Summed) -> Sum | None:
        """Note what a child's whole sub-tree has; numbers never go down."""
        found = self._sums.get((word.owner, word.group))
        if found is None:
            found = self._sums[(word.owner, word.group)] = Sum()
        received, limit, tightest = found.below.get(child, (0, 0, 0))
        if word.limit >= limit:
            limit, tightest = word.limit, word.tightest
        found.below[child] = (max(received, word.received), limit, tightest)
        return found

    @staticmethod
    def total(found: Sum, children: tuple[int, ...]) -> tuple[int, int, int] | None:
        """The least of all children and this member; None until all of them have been heard."""
        if any(child not in found.below for child in children):
            return None
        everybody = [found.own, *(found.below[child] for child in children)]
        received = min(each[0] for each in everybody)
        _, limit, tightest = min(everybody, key=lambda each: each[1])
        return received, limit, tightest

    def __len__(self) -> int:
        return len(self._sums)
