"""The entries of a replicated cache: every member applies the same changes in the same order.

Changes are notifications of a totally ordered group, so all members go through the same states. The cache is bounded:
when it is full, the entry that was written longest ago is removed. That depends on the changes alone, so it is the same
entry everywhere; reading changes nothing. The bound is part of the state: the first member's bound holds for all.

Keys are text or whole numbers; values are bodies that can be sent, and arrive as copies.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..core.errors import BadInput, MalformedFrame
from ..wire.questions import Wrapped, unwrapped, wrapped

PUT, REMOVE, CLEAR = 0, 1, 2

Key = str | int
ABSENT: Final = object()


class CacheChange(msgspec.Struct, array_like=True, frozen=True):
    what: int
    key: Key = ""
    value: Wrapped = (0, b"")


class CacheSnapshot(msgspec.Struct, array_like=True, frozen=True):
    entries_max: int
    entries: list[tuple[Key, Wrapped]]


_encode = msgspec.msgpack.Encoder().encode
_decode_change = msgspec.msgpack.Decoder(CacheChange).decode
_decode_snapshot = msgspec.msgpack.Decoder(CacheSnapshot).decode


def put(key: Key, value: Any) -> bytes:
    """The change, as it travels; ``BadBody`` if the value cannot."""
    return _encode(CacheChange(PUT, checked_key(key), wrapped(value)))


def remove(key: Key) -> bytes:
    return _encode(CacheChange(REMOVE, checked_key(key)))


def clear() -> bytes:
    return _encode(CacheChange(CLEAR))


def checked_key(key: object) -> Key:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise BadInput(f"{key!r} is no key of a cache: use text or a whole number")
    return key


class Entries:
    """One member's copy."""

    def __init__(self, entries_max: int) -> None:
        if entries_max < 1:
            raise BadInput(f"a cache of {entries_max} entries cannot be: give it room for 1 or more")
        self.entries_max = entries_max
        self.values: dict[Key, Any] = {}
        self.evicted = 0
        self.malformed = 0

    def apply(self, encoded: object) -> None:
        """Apply a change; a malformed one is counted, at every member alike."""
        try:
            change = _decode_change(encoded) if isinstance(encoded, bytes) else CacheChange(-1)
            value = unwrapped(change.value)
        except (msgspec.MsgspecError, UnicodeDecodeError, MalformedFrame):
            self.malformed += 1
            return
        if change.what == PUT:
            self.values.pop(change.key, None)  # the newest stands last
            self.values[change.key] = value
            while len(self.values) > self.entries_max:
                del self.values[next(iter(self.values))]
                self.evicted += 1
        elif change.what == REMOVE:
            self.values.pop(change.key, None)
        elif change.what == CLEAR:
            self.values.clear()
        else:
            self.malformed += 1

    def snapshot(self) -> bytes:
        return _encode(CacheSnapshot(self.entries_max, [(key, wrapped(value)) for key, value in self.values.items()]))

    def restore(self, state: bytes) -> None:
        found = _decode_snapshot(state)
        self.entries_max = found.entries_max
        self.values = {key: unwrapped(value) for key, value in found.entries}
