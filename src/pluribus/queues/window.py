"""Identities that senders gave their messages, remembered for a while: within that time a second message of the same
identity is dropped.

An identity is kept as 16 bytes of its digest. Identities are forgotten in the order in which they came, when the window
is over. Bounded: at ``IDS_MAX`` a message with an identity is refused.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

IDS_MAX = 4_000_000
GROUP = 4_096
"""Identities that share a part of the snapshot."""


def digest(identity: str) -> bytes:
    return blake2b(identity.encode(), digest_size=16).digest()


class Window:
    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        """By digest, in the order of arrival: the number of its arrival."""
        self._groups: dict[int, list[tuple[bytes, int]]] = {}
        """By group of numbers: digests, and the time when each is forgotten."""
        self.next = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, identity: str) -> bool:
        return digest(identity) in self._numbers

    def part(self) -> str:
        """The part of the snapshot that the next identity changes."""
        return _part(self.next // GROUP)

    def add(self, identity: str, until_us: int) -> None:
        key = digest(identity)
        self._numbers[key] = self.next
        self._groups.setdefault(self.next // GROUP, []).append((key, until_us))
        self.next += 1

    def over(self, now_us: int, most: int) -> list[str]:
        """Parts whose window is over."""
        found: list[str] = []
        for group, held in self._groups.items():
            if len(found) >= most or group == self.next // GROUP or _end(held) > now_us:
                break
            found.append(_part(group))
        return found

    def forget(self, part: str) -> None:
        for key, _ in self._groups.pop(int(part.partition("/")[2], 16)):
            del self._numbers[key]

    def known(self, identity: str, now_us: int) -> bool:
        number = self._numbers.get(digest(identity))
        if number is None:
            return False
        group = self._groups[number // GROUP]
        first = number - self._first(number // GROUP)
        return group[first][1] > now_us

    def renew(self, identity: str, until_us: int) -> None:
        """An identity came again after its window: the group keeps its place, and its end is later."""
        number = self._numbers[digest(identity)]
        group = self._groups[number // GROUP]
        at = number - self._first(number // GROUP)
        group[at] = (group[at][0], until_us)

    def part_of(self, identity: str) -> str:
        return _part(self._numbers[digest(identity)] // GROUP)

    def _first(self, group: int) -> int:
        return group * GROUP

    def next_us(self) -> int | None:
        """The time when the oldest group may be forgotten."""
        for group, held in self._groups.items():
            return None if group == self.next // GROUP else _end(held)
        return None

    def part_names(self) -> list[str]:
        return [_part(group) for group in self._groups]

    def encode_part(self, name: str) -> bytes:
        return msgspec.msgpack.encode(self._groups.get(int(name.partition("/")[2], 16), []))

    def restore_part(self, name: str, data: bytes) -> None:
        group = int(name.partition("/")[2], 16)
        held = msgspec.msgpack.decode(data, type=list[tuple[bytes, int]])
        self._groups[group] = held
        for at, (key, _) in enumerate(held):
            self._numbers[key] = group * GROUP + at

    def validate(self) -> None:
        assert len(self._numbers) == sum(map(len, self._groups.values()))
        assert list(self._groups) == sorted(self._groups)


def _end(held: list[tuple[bytes, int]]) -> int:
    return max(until for _, until in held)


def _part(group: int) -> str:
    return f"ids/{group:08x}"
