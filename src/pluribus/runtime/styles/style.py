"""One style of communication on one bus: what the bus must know of it, and no more.

A style is a room of its own (``slots``, ``objects``, …) with its protocol, and a folder here with two things: a *face*,
the typed methods that the style adds to the bus (``bus.enroll(…)``), and a ``Style``, what it has open on one bus. The
bus makes the ``Style`` when its face is first used, and loops over all of them when it drains, closes, is abandoned or
validated. It names none of them.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, cast


class Style:
    """What one style has open on one bus. Made with the bus, at most once; every method may be called at any time."""

    def __init__(self, bus: Any) -> None:
        self.bus = bus

    async def drain(self, timeout: float) -> None:
        """Return when nothing waits to be sent. Raise ``Undelivered`` or ``Uncertain`` for what still does after
        ``timeout`` seconds."""

    async def close(self) -> None:
        """Leave in order: others are told. Groups of the bus are still there, and are closed afterwards."""

    def abandon(self) -> None:
        """Stop as a crash would: cancel tasks, say nothing to anybody."""

    def validate(self) -> None:
        """Assert the invariants; for tests and the simulator."""


S = TypeVar("S", bound=Style)


class Styled(Protocol):
    """What a face may expect of the object that it is a face of."""

    def _style(self, kind: type[S]) -> S: ...


class StylesInUse:
    """The styles of one bus that were used, in the order of their first use."""

    def __init__(self) -> None:
        self._styles: dict[type[Style], Style] = {}

    def get(self, kind: type[S], bus: Any) -> S:
        found = self._styles.get(kind)
        if found is None:
            found = self._styles[kind] = kind(bus)
        return cast(S, found)

    def all(self) -> list[Style]:
        """The one that was used last comes first, because it may stand on the others."""
        return list(reversed(self._styles.values()))
