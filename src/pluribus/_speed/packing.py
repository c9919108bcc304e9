"""Packs durable events, in C where that was compiled. Each function handles the usual case and returns None in any
other; then the caller packs in Python (``pubsub/durable/batch.py`` has the format). Without C all but the first always
return None."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .loading import compiled

Outline = tuple[int, int, int, int, bytes, int]
"""Of a batch: session, first and last sequence, how many events, topic, latest time."""


def of_one_topic(pairs: Sequence[Any]) -> tuple[str, list[bytes], int] | None:
    """The topic, the bodies and the size of them all, if every pair is of one topic and bytes."""
    if not pairs:
        return None
    first: str = pairs[0][0]
    bodies = [body for topic, body in pairs if type(body) is bytes and topic == first]
    return (first, bodies, sum(map(len, bodies))) if len(bodies) == len(pairs) else None


def pack_plain(
    topic: str, session: int, first: int, sender: int, kind: int | str, time: int, bodies: Sequence[bytes | memoryview]
) -> bytes | None:
    """A batch of bodies and nothing else."""
    return None


def outline_plain(command: bytes) -> Outline | None:
    """Of a batch whose events are of one time."""
    return None


if not TYPE_CHECKING:
    of_one_topic = getattr(compiled, "of_one_topic", of_one_topic)  # machines that are not little-endian have none
    outline_plain = getattr(compiled, "outline_plain", outline_plain)
    pack_plain = getattr(compiled, "pack_plain", pack_plain)

__all__ = ["Outline", "of_one_topic", "outline_plain", "pack_plain"]
