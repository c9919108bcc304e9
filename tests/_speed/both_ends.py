"""What ``core/ends.py`` has, in Python and, where that was compiled, in C."""

import asyncio

import pytest

from pluribus._speed import ends

try:
    from pluribus._speed import _quick as compiled
except ImportError:
    compiled = None

KINDS = [pytest.param(ends, id="python"), *([pytest.param(compiled, id="c")] if compiled else [])]
both = pytest.mark.parametrize("kind", KINDS)


async def brought(runs, waits=()):
    """Each run, some of them after a wait."""
    for place, run in enumerate(runs):
        if place in waits:
            await asyncio.sleep(0)
        yield iter(run)
