"""How readers wait, in C where that was compiled and fits, else in Python. ``arrivals`` describes it."""

from typing import TYPE_CHECKING

from .arrivals import Arrivals, Line
from .loading import compiled

if not TYPE_CHECKING and compiled is not None:
    Arrivals, Line = compiled.Arrivals, compiled.Line

__all__ = ["Arrivals", "Line"]
