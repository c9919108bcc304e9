"""Subscriptions by object of interest: a property of a watched object changes.

Each property of an object has a topic, ``objects/NAME/PROPERTY``. Its last value is retained, so that later subscribers
get it too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..wire.bodies import register
from .topics import ONE, checked_topic

ROOT = "objects"


class Changed(msgspec.Struct, frozen=True):
    """What happened to a property; ``before`` is ``None`` when it is new."""

    object: str
    property: str
    value: Any
    before: Any = None


register(Changed, "pluribus.topics.Changed")


def topic_of(object: str, property: str) -> str:
    return checked_topic(f"{ROOT}/{object}/{property}")


def pattern_of(object: str, property: str | None = None) -> str:
    """All changes of an object, or of one of its properties."""
    return f"{ROOT}/{object}/{property or ONE}"
