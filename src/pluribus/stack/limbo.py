"""What a member that was cut off from a primary still holds of its order; ``total`` says what becomes of it."""

from __future__ import annotations

from ..core.frame import Frame


class Limbo:
    """Places, with their message if it is for this member."""

    __slots__ = ("delivered", "steps", "view")

    def __init__(self, view: tuple[int, int], delivered: int) -> None:
        self.view = view
        self.delivered = delivered
        self.steps: list[tuple[int, Frame | None]] = []

    @property
    def held(self) -> int:
        return self.delivered + sum(places for places, _ in self.steps)

    def forget(self, group: int) -> None:
        """This member has left the group."""
        self.steps = [
            (places, None if frame is None or frame.group == group else frame) for places, frame in self.steps
        ]
