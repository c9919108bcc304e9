"""The lists along which messages spread: one for each group, the same at every member, because an agreed view made it.

A list has a number that is computed from its members and its view, so that two members that use the same number mean
the same list. A frame on a list that is not known here yet is kept for a while: the view is on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b

from ...core.frame import Frame

OLDER_LISTS_MAX = 4
"""Former lists of a group that are kept, because messages may still be under way along them."""
ENDED_GROUPS_MAX = 64
"""Groups without members whose last lists are kept, because messages may still be under way along them."""
EARLY_MAX = 256
EARLY_S = 5.0


class Listed:
    """An ordered list of members, and where each of them is."""

    __slots__ = ("group", "identity", "members", "places")

    def __init__(self, group: int, stamp: int, members: tuple[int, ...]) -> None:
        self.group = group
        self.members = members
        self.places = {member: place for place, member in enumerate(members)}
        digest = blake2b(digest_size=6)
        for number in (stamp, group, *members):
            digest.update(number.to_bytes(8, "big"))
        self.identity = int.from_bytes(digest.digest(), "big")

    def __len__(self) -> int:
        return len(self.members)

    def range(self, first: int, count: int) -> Iterator[int]:
        """The indices of a sub-list, around the end of the list."""
        size = len(self.members)
        return (at % size for at in range(first, first + count))


class Lists:
    """The present list of each group, and its former ones."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._current: dict[int, Listed] = {}
        self._known: dict[int, Listed] = {}
        self._ended: dict[int, None] = {}
        self._early: list[tuple[float, Frame]] = []
        self.early_dropped = 0

    def install(self, stamp: int, groups: dict[int, tuple[int, ...]]) -> None:
        """A new view: only its lists count."""
        self._current.clear()
        self._known.clear()
        self._ended.clear()
        for group, members in groups.items():
            self.change(group, members, stamp)

    def change(self, group: int, members: tuple[int, ...], stamp: int) -> None:
        """A group has other members. Messages under way along its former list stay on that list."""
        if not members:
            self._end(group)
            return
        self._ended.pop(group, None)
        listed = Listed(group, stamp, members)
        self._current[group] = listed
        self._known.pop(listed.identity, None)
        self._known[listed.identity] = listed
        of_group = [known.identity for known in self._known.values() if known.group == group]
        for old in of_group[: -1 - OLDER_LISTS_MAX]:
            del self._known[old]

    def _end(self, group: int) -> None:
        self._current.pop(group, None)
        self._ended[group] = None
        if len(self._ended) > ENDED_GROUPS_MAX:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            for old in [known.identity for known in self._known.values() if known.group == oldest]:
                del self._known[old]

    def of(self, group: int) -> Listed | None:
        return self._current.get(group)

    def known(self, identity: int) -> Listed | None:
        return self._known.get(identity)

    def keep_early(self, frame: Frame) -> None:
        """A frame on a list that is not known yet, or no more."""
        since = self._now() - EARLY_S
        while self._early and (self._early[0][0] < since or len(self._early) >= EARLY_MAX):
            del self._early[0]
            self.early_dropped += 1
        self._early.append((self._now(), frame))

    def take_early(self) -> list[Frame]:
        """Return the kept frames whose list is known by now."""
        early, self._early = self._early, []
        self._early = [(at, frame) for at, frame in early if frame.headers[-1].along not in self._known]
        return [frame for _, frame in early if frame.headers[-1].along in self._known]

    def validate(self) -> None:
        assert len(self._early) <= EARLY_MAX and len(self._ended) <= ENDED_GROUPS_MAX
        for listed in self._current.values():
            assert self._known.get(listed.identity) is listed
            assert len(listed.places) == len(listed.members)
