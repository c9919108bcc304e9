"""Which messages and calls of this member were acknowledged, so that they can be named if they are lost after all.

A message of a totally ordered group is acknowledged when it comes back to its sender in its place, a call of a replica
when it is answered. Both hold while the chain of primaries goes on. If two chains were founded apart and meet, one is
given up (``layers.membership.primary``), and everything that was acknowledged in it is lost. Then every member of that
chain is told which of its own messages and calls these are (``Dissolved``), by event and by log.

Identities are kept as runs, so that a long life costs little. Beyond ``RUNS_MAX`` the oldest are only counted, and
beyond ``GROUPS_MAX`` groups the first ones are forgotten.
"""

from __future__ import annotations

import logging

from ..core.events import Dissolved, Run
from ..core.frame import Frame, Piece, Relayed, Standing
from ..stack.events import ViewChanged

log = logging.getLogger(__name__)

GROUPS_MAX = 1_024
RUNS_MAX = 1_024
SHOWN_MAX = 8
"""Runs that are written to the log; the event has all of them."""


class Runs:
    """Numbers by their owner: a member and its messages, or a session and its calls."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self.count = 0
        """How many identities were ever added, including those that are only counted by now."""

    def add(self, owner: int, first: int, stop: int) -> None:
        self.count += stop - first
        last = self._runs[-1] if self._runs else None
        if last is not None and last[0] == owner and last[2] == first:
            self._runs[-1] = (owner, last[1], stop)
            return
        self._runs.append((owner, first, stop))
        if len(self._runs) > RUNS_MAX:
            self._runs = list(self.runs)[-RUNS_MAX // 2 :]

    def clear(self) -> None:
        self._runs, self.count = [], 0

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs; runs that touch are joined."""
        joined: list[Run] = []
        for owner, first, stop in sorted(self._runs):
            if joined and joined[-1][0] == owner and joined[-1][2] >= first:
                joined[-1] = (owner, joined[-1][1], max(stop, joined[-1][2]))
            else:
                joined.append((owner, first, stop))
        return tuple(joined)

    def delivered(self, frame: Frame) -> None:
        """A frame of this member is back in its place. Messages that it forwarded for others do not count, nor do the
        pieces of a large message before the last."""
        for header in frame.headers:
            if isinstance(header, Relayed | Standing) or (type(header) is Piece and header.index + 1 != header.total):
                return
        self.add(frame.sender, frame.first, frame.first + frame.count)


class Acknowledged:
    """The acknowledged messages of one member, by group, including groups that it has left."""

    def __init__(self) -> None:
        self._lineage = 0
        """The chain of primaries that this member was last in."""
        self._groups: dict[str, Runs] = {}

    def of(self, group: str) -> Runs:
        found = self._groups.get(group)
        if found is None:
            if len(self._groups) >= GROUPS_MAX:
                del self._groups[next(iter(self._groups))]
            found = self._groups[group] = Runs()
        return found

    def view_changed(self, view: ViewChanged) -> list[Dissolved]:
        """What is lost by this view: everything, if the view is of another chain than this member's; else nothing."""
        if not view.primary:
            return []
        given_up = view.excluded and self._lineage not in (0, view.lineage)
        self._lineage = view.lineage
        if not given_up:
            return []
        lost = [dissolved("messages", name, runs) for name, runs in self._groups.items() if runs.count]
        for runs in self._groups.values():  # channels hold on to them
            runs.clear()
        return lost


def dissolved(what: str, name: str, runs: Runs) -> Dissolved:
    """The event for what is lost; it is logged as well."""
    told = Dissolved(what, name, runs.count, runs.runs)
    shown = ", ".join(f"{owner:x}:{first}..{stop - 1}" for owner, first, stop in told.ids[-SHOWN_MAX:])
    log.warning(
        "two primaries have met, and the one that this member was in gave way: %d %s of %r that were acknowledged in "
        "it are lost (%s%s); connect with founders= so that there is no second primary",
        told.count,
        told.what,
        told.name,
        "…, " if len(told.ids) > SHOWN_MAX else "",
        shown,
    )
    return told
