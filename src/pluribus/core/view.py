"""The members of a group, as each of them knows it."""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec


class View(msgspec.Struct, frozen=True):
    """Members in the order of their age, eldest first. ``agreed`` says whether all of them hold the same view.

    ``number`` grows from view to view at each member. It is not unique, because the sides of a partition count
    independently: a view is identified by its number together with its members.
    """

    number: int
    members: tuple[int, ...]
    names: dict[int, str] = {}
    agreed: bool = False

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member: object) -> bool:
        return member in self.members


def is_quorum(here: Container[int], members: Sequence[int]) -> bool:
    """True if more than half of the members are here, or exactly half of them with the eldest, who is first in the
    list. Two such sets always share a member."""
    present = sum(member in here for member in members)
    if 2 * present == len(members):
        return bool(members) and members[0] in here
    return 2 * present > len(members)
