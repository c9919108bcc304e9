"""Subscriptions by context: events near a place, and the subscriber may move."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from ..core.errors import BadInput
from ..filters import Filter, Template, parse

FIELDS = ("lat", "lon")


class Near(msgspec.Struct, frozen=True):
    """Within so many metres of a place, in degrees. ``fields`` are where a body has its latitude and longitude."""

    latitude: float
    longitude: float
    within_m: float
    fields: tuple[str, str] = FIELDS

    def __post_init__(self) -> None:
        if not -90 <= self.latitude <= 90 or not -180 <= self.longitude <= 180:
            raise BadInput(f"({self.latitude}, {self.longitude}) is no place: give -90 to 90 and -180 to 180 degrees")
        if not 0 < self.within_m < 1e9:
            raise BadInput(f"within_m={self.within_m} is no distance: give metres above 0")

    def condition(self, where: str | None = None) -> Filter:
        """As a filter; with another condition that must hold too."""
        return _template(self.fields, where).bind(lat=self.latitude, lon=self.longitude, within=self.within_m)

    def moved(self, latitude: float, longitude: float) -> Near:
        return Near(latitude, longitude, self.within_m, self.fields)


def near_and(near: Near | None, where: str | Filter | None) -> str | Filter | None:
    """A condition, and nearness to a place if there is one."""
    return where if near is None else near.condition(None if where is None else str(where))


@lru_cache(1_024)
def _template(fields: tuple[str, str], where: str | None) -> Template:
    """Parsed once, however often somebody moves."""
    near = f"DISTANCE({fields[0]}, {fields[1]}, :lat, :lon) <= :within"
    # Parsed by itself first: brackets and comments of the one must not reach into the other.
    return Template(near if where is None else f"({parse(where)}) AND {near}")
