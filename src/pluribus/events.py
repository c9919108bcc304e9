"""What ``bus.events()`` tells: who is suspected, which view there is, what a partition and its end mean."""

from .core.events import (
    BecamePrimary,
    Event,
    Excluded,
    Gone,
    JoinRefused,
    LostPrimary,
    Merged,
    Missed,
    Resumed,
    Reverted,
    Skipped,
    Stalled,
    Suspected,
    Uncertain,
    Unsuspected,
    ViewInstalled,
)

__all__ = [
    "BecamePrimary",
    "Event",
    "Excluded",
    "Gone",
    "JoinRefused",
    "LostPrimary",
    "Merged",
    "Missed",
    "Resumed",
    "Reverted",
    "Skipped",
    "Stalled",
    "Suspected",
    "Uncertain",
    "Unsuspected",
    "ViewInstalled",
]
