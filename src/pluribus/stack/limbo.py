"""What a member that was cut off from a primary still holds of its order; ``layers.total`` says what becomes of it."""

from __future__ import annotations

from ..core.frame import Frame, Piece, Relayed, Standing
from ..core.ids import MessageId
from .events import NOWHERE, Places


class Limbo:
    """Messages that were not delivered, each with the place in the order that it ends at."""

    __slots__ = ("held", "reached", "steps", "view")

    def __init__(self, view: tuple[int, int], held: Places, reached: Places) -> None:
        self.view = view
        self.held = held
        """How far the order of that view is known here, and nothing of it missing."""
        self.reached = reached
        """How far it was delivered."""
        self.steps: list[tuple[int, Frame]] = []

    def forget(self, group: int) -> None:
        """This member has left the group."""
        self.steps = [(place, frame) for place, frame in self.steps if frame.group != group]


def reached(limbo: Limbo | None) -> Places:
    """How far a member that is in no primary has delivered the last one's order."""
    return limbo.reached if limbo is not None else NOWHERE


def messages_of(frame: Frame) -> list[MessageId]:
    """The messages that a frame completes: of pieces, the one whose last piece it is; none if they are not the
    sender's own."""
    if any(isinstance(header, Relayed | Standing) for header in frame.headers):
        return []
    piece = next((header for header in frame.headers if type(header) is Piece), None)
    if piece is not None and piece.index + 1 != piece.total:
        return []
    return [(frame.sender, number) for number in range(frame.first, frame.first + frame.count)]
