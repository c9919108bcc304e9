"""How readers wait, in C where that was compiled, else in Python; ``arrivals`` says what they are."""

from contextlib import suppress
from typing import TYPE_CHECKING

from .arrivals import Arrivals, Line

if not TYPE_CHECKING:
    with suppress(ImportError):
        from ...core._quick import Arrivals, Line

__all__ = ["Arrivals", "Line"]
