"""Looking at the messages of a queue, a page at a time, without taking them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ....queues import words
from ....queues.words import Outcome
from ...machines.line import MachineLine

PAGE = 256
"""Messages that are browsed, or removed, in one step."""


async def look(line: MachineLine[Outcome], question: words.Look) -> words.Looked:
    return _looked(await line.inspect(words.encode(question), timeout=None))


async def has_ready(line: MachineLine[Outcome], selector: bytes, enough: Callable[[], bool]) -> bool:
    """Whether a message is ready that matches. ``enough`` is called before every page: true ends the look."""
    start = 0
    while not enough():
        looked = await look(line, words.Look(start, PAGE, selector))
        if any(one.state == "ready" for one in looked.found):
            return True
        start = looked.then
        if not start:
            break
    return False


_looked = msgspec.msgpack.Decoder(words.Looked).decode
