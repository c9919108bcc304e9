"""What ``bus.events()`` tells: who is suspected, which view there is, what a partition and its end mean."""

from .core.events import (
    BecamePrimary,
    Dissolved,
    Event,
    Excluded,
    Gone,
    JoinRefused,
    LostPrimary,
    Merged,
    Missed,
    Resumed,
    Skipped,
    Stalled,
    Suspected,
    Uncertain,
    Unsuspected,
    ViewInstalled,
)

__all__ = [
    "BecamePrimary",
    "Dissolved",
    "Event",
    "Excluded",
    "Gone",
    "JoinRefused",
    "LostPrimary",
    "Merged",
    "Missed",
    "Resumed",
    "Skipped",
    "Stalled",
    "Suspected",
    "Uncertain",
    "Unsuspected",
    "ViewInstalled",
]
