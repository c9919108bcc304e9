"""What is on the way of every message or frame, in C where that was compiled, else in Python; ``ends``,
``passing`` and ``reading`` say what they are."""

import sys
from typing import TYPE_CHECKING, Any

from .ends import End, OpenBatch, flatten, publishes, sends
from .passing import Runner, way
from .reading import Reading

COMPILED = False
Straight: Any = None

if not TYPE_CHECKING:
    try:
        from ._quick import Reading, Runner, Straight, flatten, way

        COMPILED = True
        # From 3.12 on `await` makes an exception for what a call in C returns, and coroutines are as quick.
        if sys.version_info < (3, 12):
            from ._quick import End, OpenBatch, publishes, sends
    except ImportError:
        pass

__all__ = ["COMPILED", "End", "OpenBatch", "Reading", "Runner", "Straight", "flatten", "publishes", "sends", "way"]
