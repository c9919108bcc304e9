"""Notices: translates events of the layers into events for the application (``core.events``)."""

from __future__ import annotations

from collections.abc import Callable

from ..core.events import (
    BecamePrimary,
    Dissolved,
    Event,
    Excluded,
    Gone,
    JoinRefused,
    LostPrimary,
    Merged,
    Resumed,
    Reverted,
    Stalled,
    Suspected,
    Uncertain,
    Unsuspected,
    ViewInstalled,
)
from ..core.ids import MemberId
from ..core.view import View
from ..stack.events import Members, ViewChanged

PLAIN = (Suspected, Unsuspected, Gone, Excluded, Dissolved, JoinRefused, Uncertain, Reverted, Stalled, Resumed)
"""Events that are passed on unchanged."""


class Notices:
    """Tells a new view first, then what it means, then events that came while the view was being shown."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._primary = False
        self._changed: ViewChanged | None = None
        self._waiting: list[Event] = []

    def take(self, event: Event) -> None:
        if isinstance(event, ViewChanged):
            self._changed = event
        elif isinstance(event, Members):
            if event.group == 0 and self._changed is not None:
                changed, self._changed = self._changed, None
                self._show(changed, event)
        elif isinstance(event, PLAIN):
            if self._changed is None:
                self._tell(event)
            else:
                self._waiting.append(event)

    def _show(self, changed: ViewChanged, members: Members) -> None:
        people = {member: MemberId(member) for member in changed.members}
        names: dict[int, str] = {people[member]: name for member, name in members.names.items()}
        view = View(changed.number, tuple(people.values()), names, agreed=True)
        self._tell(ViewInstalled(view, changed.primary))
        if changed.sides:
            self._tell(Merged(tuple(tuple(people[member] for member in side) for side in changed.sides)))
        if changed.primary is not self._primary:
            self._primary = changed.primary
            self._tell(BecamePrimary(view) if changed.primary else LostPrimary(view))
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self._tell(event)
