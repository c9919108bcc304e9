"""The two ends of a stream, in C where that was compiled, else in Python; ``ends`` says what they are."""

import sys
from typing import TYPE_CHECKING

from .ends import End, OpenBatch, flatten, publishes, sends

COMPILED = False

if not TYPE_CHECKING:
    try:
        from ._quick import flatten

        COMPILED = True
        # From 3.12 on `await` makes an exception for what a call in C returns, and coroutines are as quick.
        if sys.version_info < (3, 12):
            from ._quick import End, OpenBatch, publishes, sends
    except ImportError:
        pass

__all__ = ["COMPILED", "End", "OpenBatch", "flatten", "publishes", "sends"]
