"""The two ends of a stream, in C where that was compiled, else in Python; ``ends`` says what they are."""

from typing import TYPE_CHECKING

from .ends import End, OpenBatch, flatten, publishes, sends

COMPILED = False

if not TYPE_CHECKING:
    try:
        from ._quick import End, OpenBatch, flatten, publishes, sends

        COMPILED = True
    except ImportError:
        pass

__all__ = ["COMPILED", "End", "OpenBatch", "flatten", "publishes", "sends"]
