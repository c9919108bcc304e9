"""The two ends of a stream, and how readers wait, in C where that was compiled, else in Python; ``ends`` and
``arrivals`` say what they are."""

import sys
from typing import TYPE_CHECKING

from .arrivals import Arrivals, Line
from .ends import End, OpenBatch, flatten, publishes, sends

COMPILED = False

if not TYPE_CHECKING:
    try:
        from ._quick import Arrivals, Line, flatten

        COMPILED = True
        # From 3.12 on `await` makes an exception for what a call in C returns, and coroutines are as quick.
        if sys.version_info < (3, 12):
            from ._quick import End, OpenBatch, publishes, sends
    except ImportError:
        pass

__all__ = ["COMPILED", "Arrivals", "End", "Line", "OpenBatch", "flatten", "publishes", "sends"]
