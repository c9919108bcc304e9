"""*Limbo*: the messages of a primary's total order that a member holds, and has not delivered, when it is cut off from
that primary. ``layers.total`` says what becomes of them."""

from __future__ import annotations

from ..core.frame import Frame, Piece, Relayed, Standing
from ..core.ids import MessageId
from .events import NOWHERE, Places


class Limbo:
    """Messages that were not delivered, each with its place in the order."""

    __slots__ = ("held", "reached", "steps", "view")

    def __init__(self, view: tuple[int, int], held: Places, reached: Places) -> None:
        self.view = view
        self.held = held
        """The position up to which the order of that view is known here without a gap."""
        self.reached = reached
        """The position up to which it was delivered."""
        self.steps: list[tuple[int, Frame]] = []

    def forget(self, group: int) -> None:
        """This member has left the group."""
        self.steps = [(place, frame) for place, frame in self.steps if frame.group != group]


def reached(limbo: Limbo | None) -> Places:
    """The position up to which a member that is in no primary has delivered the order of the last one."""
    return limbo.reached if limbo is not None else NOWHERE


def messages_of(frame: Frame) -> list[MessageId]:
    """The numbers of the messages that a frame completes. A frame with a last piece completes that message; a frame
    that was relayed for somebody else completes none."""
    if any(isinstance(header, Relayed | Standing) for header in frame.headers):
        return []
    piece = next((header for header in frame.headers if type(header) is Piece), None)
    if piece is not None and piece.index + 1 != piece.total:
        return []
    return [(frame.sender, number) for number in range(frame.first, frame.first + frame.count)]
