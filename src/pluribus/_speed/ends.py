"""The two ends of a stream, where Python runs a message at a time; import them from ``quick``.

``c`` has the same in C. It is used where it was compiled, because a program that sends or reads a million
messages a second spends most of its time here. A test holds the two to the same answers.

*Reading*: ``flatten`` makes one async iterator of the runs of messages that another brings.

*Sending*: an ``End`` has an ``OpenBatch``. ``sends`` and ``publishes`` mark the coroutine function that appends to it:
compiled, the usual call, with a body that the batch takes, is over without a coroutine. In Python there is no shorter
way than the function itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from ..core.ids import MessageId

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


async def flatten(runs: AsyncGenerator[Iterator[T], None]) -> AsyncIterator[T]:
    """The elements of each run, one after another."""
    async with aclosing(runs):
        async for run in runs:
            for element in run:
                yield element


class OpenBatch:
    """Bodies that gather to be sent together.

    A body of this ``type``, encoded if that is not ``bytes``, and then not longer than ``alike``, may be appended to
    ``pending`` by whoever takes an identity from ``ids`` for it. Where there are topics, it must be under ``solo``; or,
    if that is None, under one of ``places``, whose number goes to ``of``.
    """

    __slots__ = ("alike", "ids", "of", "pending", "places", "solo", "type")

    alike: int
    ids: Iterator[MessageId]
    of: bytearray
    pending: list[bytes]
    places: dict[str, int]
    solo: str | None
    type: type | None


class End:
    """What a program sends through; ``_open`` is its open batch."""

    __slots__ = ("_alone", "_open")

    _open: Any
    _alone: Callable[[bytes], MessageId | None] | None
    """Sends a body at once, if that may be, and returns its identity; where nothing does so, the method tries."""


def sends(function: F, encode: Callable[[Any], bytes]) -> F:
    """A method of an ``End`` that sends a body: ``send(body, ...)``."""
    return function


def publishes(function: F, encode: Callable[[Any], bytes]) -> F:
    """A method of an ``End`` that publishes a body under a topic: ``publish(topic, body, ...)``."""
    return function
