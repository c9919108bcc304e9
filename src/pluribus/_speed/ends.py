"""The two ends of a stream, where Python handles one message at a time; import them from ``quick``.

``c`` has the same in C. It is used where it was compiled, because a program that sends or reads a million
messages a second spends most of its time here. A test holds the two to the same answers.

*Reading*: ``flatten`` turns an async iterator of runs of messages into one of messages.

*Sending*: an ``End`` has an ``OpenBatch``. ``sends`` and ``publishes`` mark the coroutine function that appends to the
batch. In C the usual call, with a body that fits into the batch, needs no coroutine. In Python the marked function
stays as it is.
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

    A caller may append a body to ``pending`` if the body is of this ``type`` (encoded, if that is not ``bytes``), is
    not longer than ``alike``, and if the caller takes an identity for it from ``ids``. In a batch of events the topic
    must be ``solo``; or, if that is None, one of ``places``, and the number of the place is appended to ``of``.
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
    """An object through which a program sends; ``_open`` is its open batch."""

    __slots__ = ("_alone", "_open")

    _open: Any
    _alone: Callable[[bytes], MessageId | None] | None
    """Sends a body at once and returns its identity, or returns None if it may not; then the method itself sends it."""


def sends(function: F, encode: Callable[[Any], bytes]) -> F:
    """A method of an ``End`` that sends a body: ``send(body, ...)``."""
    return function


def publishes(function: F, encode: Callable[[Any], bytes]) -> F:
    """A method of an ``End`` that publishes a body under a topic: ``publish(topic, body, ...)``."""
    return function
