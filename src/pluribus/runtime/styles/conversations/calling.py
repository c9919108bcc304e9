"""Calls of the program's own functions, its listeners and call-backs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


def call_safely(function: Callable[..., object], *given: Any) -> None:
    """Call it; an exception is logged. It must not end the task that reads a room, or this member would be deaf."""
    try:
        function(*given)
    except Exception:
        log.exception("%s failed", getattr(function, "__qualname__", function))
