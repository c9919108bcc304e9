"""The code that every message or frame passes through, in C where that was compiled and fits, else in Python. ``ends``,
``passing`` and ``reading`` describe it."""

import sys
from typing import TYPE_CHECKING

from .ends import End, OpenBatch, flatten, publishes, sends
from .loading import COMPILED, REASON, compiled
from .passing import Runner, way
from .reading import Reading

if TYPE_CHECKING:
    from ._quick import Straight
else:
    Straight = None  # its twin is the stack's layers: without it every frame goes through them
    if COMPILED:
        Reading, Runner, Straight = compiled.Reading, compiled.Runner, compiled.Straight
        flatten, way = compiled.flatten, compiled.way
        # 3.11 only, to be deleted with it: later, `await` makes an exception for what a call in C returns, and
        # coroutines are as quick.
        if sys.version_info < (3, 12):
            End, OpenBatch = compiled.End, compiled.OpenBatch
            publishes, sends = compiled.publishes, compiled.sends

__all__ = [
    "COMPILED",
    "REASON",
    "End",
    "OpenBatch",
    "Reading",
    "Runner",
    "Straight",
    "flatten",
    "publishes",
    "sends",
    "way",
]
