"""The members that are writing just now. The words are not kept and not repeated: a lost one costs only a hint.

A member that writes says so at most every ``SAY_S`` seconds, and once when it stops. It is shown as writing until it
stops, says something, or is silent for ``SHOWN_S``. Bound: ``WRITING_MAX`` members; more are not shown.
"""

from __future__ import annotations

from .words import Writing

SAY_S = 3.0
SHOWN_S = 7.0
WRITING_MAX = 64


class Typing:
    """``write`` returns a word for the others, if one is needed. ``changed`` is set when ``members`` differs."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}
        self._said_at: float | None = None
        self.changed = False

    @property
    def members(self) -> list[int]:
        """The members that are writing, the one that began first in front."""
        return list(self._until)

    def write(self, going: bool, now: float) -> Writing | None:
        """This member is writing, or has stopped."""
        if going and self._said_at is not None and now - self._said_at < SAY_S:
            return None
        if not going and self._said_at is None:
            return None
        self._said_at = now if going else None
        return Writing(going)

    def said(self) -> None:
        """This member has sent its message, which shows that it stopped."""
        self._said_at = None

    def heard(self, sender: int, going: bool, now: float) -> None:
        if not going:
            self.ended(sender)
        elif sender in self._until or len(self._until) < WRITING_MAX:
            self.changed = self.changed or sender not in self._until
            self._until[sender] = now + SHOWN_S

    def ended(self, sender: int) -> None:
        if self._until.pop(sender, None) is not None:
            self.changed = True

    def tick(self, now: float) -> None:
        for sender in [sender for sender, until in self._until.items() if now >= until]:
            self.ended(sender)

    @property
    def due_at(self) -> float | None:
        return min(self._until.values()) if self._until else None

    def validate(self) -> None:
        assert len(self._until) <= WRITING_MAX
