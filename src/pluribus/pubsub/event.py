"""What a subscriber gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from ..core.errors import BadInput
from ..core.ids import MessageId

NO_HEADERS: Mapping[str, Any] = MappingProxyType({})
KEY = "key"
"""The header that holds the key which an event was published with."""
B = TypeVar("B")


def with_key(headers: Mapping[str, Any] | None, key: str | None) -> Mapping[str, Any] | None:
    """The headers of an event that has a key."""
    return headers if key is None else {**(headers or {}), KEY: key}


def keys_of(key: str | Sequence[str | None] | None, count: int) -> Sequence[str | None] | None:
    """The key of each of so many events: one for all, or one each; None if there are none."""
    if key is None or isinstance(key, str):
        return None if key is None else [key] * count
    if len(key) != count:
        raise BadInput(f"{len(key):,} keys for {count:,} events: give one key for all, or one for each event")
    return key


class Event(msgspec.Struct, Generic[B], gc=False):
    """An event under a topic. Made by the hundred from a batch; several readers of one process share it: read it only.

    ``time`` is when it was published, in seconds since 1970 by the publisher's clock. ``id`` is its sender and a number
    that grows with every event of that sender, whatever the topic.
    """

    body: B
    sender: int
    id: MessageId
    topic: str
    time: float
    headers: Mapping[str, Any] = NO_HEADERS
    parent: MessageId | None = None
    """The event that this one answers."""
    retained: bool = False
    """It was published before this subscription began, and is the last under its topic."""
    offset: int | None = None
    """Its place in the log of a durable topic."""
    again: bool = False
    """It was given before to another subscriber of the set, which may have handled it before it died."""
