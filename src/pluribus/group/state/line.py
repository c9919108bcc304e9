"""Marks that stand in an inbox between frames, and which messages a reader has passed since the last view."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ...core.errors import TooLarge
from ...core.frame import Frame, Parents
from ...wire.bodies import array_header
from .words import SEEN_MAX, Seen

_decode_raw = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class ViewChange:
    """A view of the group, with what state transfer needs to know of it."""

    __slots__ = ("after", "continues", "epoch", "lineage", "members", "point", "primary", "sent", "view")

    def __init__(
        self,
        point: int,
        members: tuple[int, ...],
        *,
        primary: bool,
        continues: bool,
        lineage: int = 0,
        epoch: int = 0,
        sent: int = 0,
        view: tuple[int, int] = (0, 0),
        after: tuple[int, int] | None = None,
    ) -> None:
        self.point = point
        self.members = members
        self.primary = primary
        self.continues = continues
        """This member comes directly from the view before; all members that do have delivered the same messages in
        it."""
        self.lineage = lineage
        self.epoch = epoch
        self.sent = sent
        """The number of this member's next message; lower numbers were sent in earlier views."""
        self.view = view
        """The view of the bus."""
        self.after = after
        """Of a primary: the primary before it, if this member was in that."""


NO_CHANGE = ViewChange(-1, (), primary=False, continues=False)


class Mark(Frame, kw_only=True):
    """An action in the inbox: it is done when the reader comes here, between two messages."""

    act: Callable[[], None]
    change: Any = NO_CHANGE
    """The view that begins here, if one does."""

    @classmethod
    def of(cls, act: Callable[[], None], change: ViewChange = NO_CHANGE) -> Mark:
        return cls(sender=1, act=act, change=change, bodies=[])


class HeldFrame(Frame, kw_only=True):
    """A frame that was held back. ``paid``: it was given back to its sender's window already."""

    paid: bool = False
    owner: int = 0

    @property
    def stream(self) -> tuple[int, int, int]:
        """The stream to whose window the frame is charged."""
        return (self.owner, self.group, self.to)

    @classmethod
    def of(cls, frame: Frame, *, paid: bool) -> HeldFrame:
        return cls(
            sender=frame.sender,
            to=frame.to,
            group=frame.group,
            first=frame.first,
            count=frame.count,
            size=frame.size,
            kind=frame.kind,
            headers=frame.headers,
            bodies=frame.bodies,
            paid=paid,
            owner=frame.stream[0],
        )


class Seens:
    """By sender, the numbers of messages that were passed, as ranges: one range where the order keeps a sender's own
    order, a few in semantic order."""

    __slots__ = ("_ranges",)

    def __init__(self, seen: Iterable[Seen] = ()) -> None:
        self._ranges: dict[int, list[list[int]]] = {}
        for sender, first, stop in seen:
            self._ranges.setdefault(sender, []).append([first, stop])

    def add(self, frame: Frame) -> None:
        first, stop = frame.first, frame.first + max(frame.count, 1)  # a piece of a larger message has no count
        ranges = self._ranges.get(frame.sender)
        if ranges is None:
            self._ranges[frame.sender] = [[first, stop]]
        elif ranges[-1][1] == first:
            ranges[-1][1] = stop
        else:
            ranges.append([first, stop])
            if len(ranges) > 64:
                _joined(ranges)

    def unseen(self, frame: HeldFrame) -> list[HeldFrame]:
        """The messages of a frame that were not passed, as frames: the frame itself, none, or some runs."""
        seen = [
            (max(first, frame.first), min(stop, frame.first + frame.count))
            for first, stop in self._ranges.get(frame.sender, ())
            if first < frame.first + frame.count and frame.first < stop
        ]
        if not seen:
            return [frame]
        runs = []
        at = frame.first
        for first, stop in sorted(seen):
            if at < first:
                runs.append((at, first))
            at = max(at, stop)
        if at < frame.first + frame.count:
            runs.append((at, frame.first + frame.count))
        return [_run(frame, first - frame.first, stop - frame.first) for first, stop in runs]

    def list(self) -> list[Seen]:
        found = [(sender, first, stop) for sender, ranges in self._ranges.items() for first, stop in ranges]
        if len(found) > SEEN_MAX:
            raise TooLarge(f"a snapshot in the middle of {len(found):,} runs of messages, of at most {SEEN_MAX:,}")
        return found

    def clear(self) -> None:
        self._ranges.clear()


def _run(frame: HeldFrame, start: int, stop: int) -> HeldFrame:
    """A frame of some messages of another, for which the window is not charged any more."""
    bodies = frame.bodies if isinstance(frame.bodies, list) else _decode_raw(frame.bodies)
    kept = bodies[start:stop]
    headers = [
        Parents(header.of[start:stop], [place - start for place in header.orphans if start <= place < stop])
        if isinstance(header, Parents)
        else header
        for header in frame.headers
    ]
    return HeldFrame(
        sender=frame.sender,
        to=frame.to,
        group=frame.group,
        first=frame.first + start,
        count=len(kept),
        size=0,
        kind=frame.kind,
        headers=headers,
        bodies=kept if isinstance(frame.bodies, list) else msgspec.Raw(array_header(len(kept)) + b"".join(kept)),
        paid=True,
        owner=frame.owner,
    )


def _joined(ranges: list[list[int]]) -> None:
    """Put ranges in order and join those that touch."""
    ranges.sort()
    kept: list[list[int]] = []
    for first, stop in ranges:
        if kept and kept[-1][1] >= first:
            kept[-1][1] = max(kept[-1][1], stop)
        else:
            kept.append([first, stop])
    ranges[:] = kept
