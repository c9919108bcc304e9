"""One style of communication on one bus: what the bus must know of it, and no more.

A style is a room of its own (``slots``, ``objects``, …) with its protocol, and a folder here with two things: a *face*,
the typed methods that the style adds to the bus (``bus.enroll(…)``), and a ``Style``, what it has open on one bus. The
bus makes the ``Style`` when it is first used, and loops over all of them when it drains, closes, is abandoned or
validated. It names none of them.

A style that programs outside of the bus may use, or that members ask each other about, registers its *words*
(``wire/asking.py``) and answers them in ``handle``: there is one handler for all askers. On a client the same face is
made of another ``Style`` (``on_clients``), which asks the client's member through its line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol, TypeVar, cast

from ...core.errors import Refused


class Asker(Protocol):
    """The program that asks a question, as a style sees it: a client, a member, or this program itself."""

    client: bool
    """Whether it is no member of the bus."""
    visitor: Any
    """For a client: its identity for the guard (``runtime/styles/access/guard.py``)."""
    held: dict[Any, Callable[[], Awaitable[None]]]
    """What styles hold for this asker, each with a function that releases it. All are called when the asker is gone."""

    async def push(self, style: str, body: Any) -> None:
        """Send something that is no answer; returns when there is room for more. ``TooLarge`` if it does not fit."""


class Style:
    """What one style has open on one bus. Made with the bus, at most once; every method may be called at any time."""

    closes: ClassVar[int] = 50
    """Styles drain and close in the order of these numbers, the smallest first; of equal ones the style that was first
    used last. Styles on which others stand have large numbers."""
    on_clients: ClassVar[str] = ""
    """``module:Class``, below this package, of the style on a client; empty: it needs a member."""

    def __init__(self, bus: Any) -> None:
        self.bus = bus

    async def handle(self, request: Any, asker: Asker) -> Any:
        """Answer one of the style's questions. Exceptions of ``core.errors`` are raised to the asker as they are."""
        raise Refused(f"{type(request).__name__} is not answered by this member: it is of another release")

    async def drain(self, timeout: float) -> None:
        """Return when nothing waits to be sent. Raise ``Undelivered`` or ``Uncertain`` for what still does after
        ``timeout`` seconds."""

    async def close(self) -> None:
        """Leave in order: others are told. Groups of the bus are still there, and are closed afterwards."""

    def abandon(self) -> None:
        """Stop as a crash would: cancel tasks, say nothing to anybody."""

    def told(self) -> dict[str, dict[str, Any]]:
        """Lines for ``pluribus top``, by heading; only a few, because they travel in datagrams."""
        return {}

    def validate(self) -> None:
        """Assert the invariants; for tests and the simulator."""


S = TypeVar("S", bound=Style)


class Styled(Protocol):
    """What a face needs of the bus to which it belongs."""

    def _style(self, kind: type[S]) -> S: ...


class StylesInUse:
    """The styles of one bus that were used."""

    def __init__(self) -> None:
        self._styles: dict[type[Style], Style] = {}

    def get(self, kind: type[S], bus: Any) -> S:
        found = self._styles.get(kind)
        if found is None:
            found = self._styles[kind] = kind(bus)
        return cast(S, found)

    def found(self, kind: type[S]) -> S | None:
        """The style, if it was used."""
        return cast("S | None", self._styles.get(kind))

    def all(self) -> list[Style]:
        """In the order in which they close."""
        last_first = list(reversed(self._styles.values()))
        return sorted(last_first, key=lambda style: style.closes)
