"""Requests about many topics at once, in place of one round trip for each topic.

A query over ten thousand topics reads a few events of each. Topic by topic it would wait ten thousand times, and the
keeper would read the same rows of its log again and again. These requests name all ranges together, and the keeper goes
over its log once (``sweep.py``).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from .commands import Text, Whole

RANGES_MAX = 100_000
"""Topics in one request."""
COMMANDS_MAX = 8_192
"""Commands in one request."""
MANY_BYTES = 4 << 20
"""What one answer holds, about."""


class FetchMany(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """Events of many topics, each named once: topic, start, stop. The answer is ``FetchedMany``. ``where`` is a filter;
    without ``bodies`` only the envelope."""

    ranges: Annotated[list[tuple[Text, Whole, Whole]], msgspec.Meta(max_length=RANGES_MAX)]
    bytes_max: Whole = MANY_BYTES
    where: str = ""
    bodies: bool = True


class DoMany(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Several of ``commands``, in this order; the answer is a list of their outcomes."""

    commands: Annotated[list[bytes], msgspec.Meta(max_length=COMMANDS_MAX)]


class AtMany(msgspec.Struct, array_like=True, frozen=True, tag=10):
    """Of each topic the first offset of an event of this time or later; the answer is a list of offsets."""

    topics: Annotated[list[Text], msgspec.Meta(max_length=RANGES_MAX)]
    time_us: int


class FetchedMany(msgspec.Struct, array_like=True, frozen=True):
    """Packed batches, and the ranges that are left to be asked for."""

    pieces: list[tuple[int, int, bytes]]
    """The number of a range, the offset of the batch's first event, the batch. Batches of one range are in order."""
    left: list[tuple[int, int]]
    """Ranges that are not read to their stop: number, and where to go on."""
    gone: list[tuple[int, int]] = []
    """Ranges whose start was removed by retention: number, and the first offset that is kept. Nothing was read of
    them."""
    log: int = 0
    """Which log, as ``Fetched.log``."""
    ended: bool = False
    """True if the rest does not exist: it was never written, or these keepers lost it."""


Many = FetchMany | DoMany | AtMany
