"""Running a program on the fastest loop that this machine has."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on uvloop where it is installed, on the standard loop elsewhere.

    Ctrl-C cancels ``main``, so that members leave, and raises ``KeyboardInterrupt`` without the story of what was
    cancelled.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            return runner.run(main)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None


def new_loop() -> asyncio.AbstractEventLoop:
    """A new loop, uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
