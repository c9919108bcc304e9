"""Providing: a member with the state takes snapshots for members that ask, and serves them chunk by chunk.

The reader takes a snapshot between two messages, as soon as it has passed the point that was asked for. Several joiners
of one view share one snapshot.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from ...core.frame import Frame, Header
from ...core.ids import MemberId
from .chunks import CHUNKS_PER_WANT_MAX, Snapshot
from .line import Mark, Seens
from .words import Chunk, Over, Want

log = logging.getLogger(__name__)

SNAPSHOTS_MAX = 2
SNAPSHOT_S_MAX = 30.0
"""A snapshot for which nobody has asked for so long is forgotten."""

Asker = tuple[int, int]
"""A member, and its number for the transfer."""


class State(Protocol):
    """The object that an application gives as ``state=``. Both methods run between two messages, on the loop."""

    def snapshot(self) -> bytes | Iterable[bytes]:
        """The state after everything that was read so far. Parts of an iterator are fetched later; they must show the
        state of now, even if it has changed."""

    def restore(self, state: bytes, /) -> None:
        """Become what another member's ``snapshot`` gave."""


class Serving:
    """Where the reader is, which members want a snapshot, and the snapshots that are kept."""

    def __init__(
        self,
        me: int,
        state: State,
        inbox: deque[Frame],
        chunk_bytes: int,
        wake: Callable[[], None],
        say: Callable[[int, Header], None],
        run: Callable[[Callable[[], None]], None],
        now: Callable[[], float],
    ) -> None:
        self._me = me
        self._state = state
        self._inbox = inbox
        self._chunk_bytes = chunk_bytes
        self._wake = wake
        self._say = say
        self._run = run
        self._now = now
        self._read_point = -1
        self.seens = Seens()
        """Messages that the reader has passed since its point."""
        self._asked: dict[Asker, Want] = {}
        self._taking = False
        self._snapshots: list[Snapshot] = []
        self._serving: dict[Asker, Snapshot] = {}
        self.taken = 0

    def reader_at(self, point: int, seens: Seens) -> None:
        self._read_point = point
        self.seens = seens
        self._look_for_askers()

    def wanted(self, sender: int, want: Want, members: tuple[int, ...], *, ready: bool) -> None:
        """``ready``: the state is right, or will be when the reader has come so far."""
        key = (sender, want.transfer)
        snapshot = self._serving.get(key)
        if snapshot is None and ready:
            self._forget(members)
            snapshot = next((found for found in self._snapshots if found.point >= want.point), None)
            if snapshot is None:
                self._asked[key] = want
                self._look_for_askers()
                return
            self._serving[key] = snapshot
        if snapshot is not None:
            self._serve(key, snapshot, want)

    def _look_for_askers(self) -> None:
        """If the reader is where a snapshot is wanted, have one taken before it goes on."""
        if not self._taking and any(want.point <= self._read_point for want in self._asked.values()):
            self._taking = True
            self._inbox.appendleft(Mark.of(self._take_snapshot))
            self._wake()

    def _take_snapshot(self) -> None:
        self._taking = False
        asked = {key: want for key, want in self._asked.items() if want.point <= self._read_point}
        for key in asked:
            del self._asked[key]
        if asked:
            snapshot = self._taken()
            self._run(lambda: self._answer(asked, snapshot))

    def _taken(self) -> Snapshot | None:
        try:
            state, seen = self._state.snapshot(), self.seens.list()
            snapshot = Snapshot(self._read_point, seen, state, self._chunk_bytes, self.taken)
        except Exception:
            log.exception("%s could not take a snapshot for a joiner", MemberId(self._me))
            return None
        self.taken += 1
        snapshot.used_at = self._now()
        self._snapshots.append(snapshot)
        return snapshot

    def _answer(self, asked: dict[Asker, Want], snapshot: Snapshot | None) -> None:
        del self._snapshots[:-SNAPSHOTS_MAX]
        self._end_transfers()
        for key, want in asked.items():
            if snapshot is None:
                self._say(key[0], Over(key[1]))
            else:
                self._serving[key] = snapshot
                self._serve(key, snapshot, want)

    def _end_transfers(self) -> None:
        """End transfers of snapshots that are not kept any more; the members will ask again, and get a later one."""
        for key in [key for key, served in self._serving.items() if served not in self._snapshots]:
            del self._serving[key]
            self._say(key[0], Over(key[1]))

    def _serve(self, key: Asker, snapshot: Snapshot, want: Want) -> None:
        member, transfer = key
        number = snapshot.number
        snapshot.used_at = self._now()
        for index in range(want.first, min(want.stop, want.first + CHUNKS_PER_WANT_MAX)):
            if index == 0:
                self._say(member, Chunk(transfer, number, 0, point=snapshot.point, seen=snapshot.seen))
                continue
            try:
                found = snapshot.chunk(index)
            except Exception:
                log.exception("%s could not go on with a snapshot for a joiner", MemberId(self._me))
                self._snapshots.remove(snapshot)  # an iterator that failed has an end, which is not that of the state
                self._end_transfers()
                return
            if found is None:
                return
            data, last = found
            self._say(member, Chunk(transfer, number, index, data, last, snapshot.point))

    def over(self, sender: int, transfer: int, members: tuple[int, ...]) -> None:
        self._serving.pop((sender, transfer), None)
        self._asked.pop((sender, transfer), None)
        self._forget(members)

    def _forget(self, members: tuple[int, ...]) -> None:
        """Forget transfers of members that are gone or done, and snapshots for which nobody asks."""
        now = self._now()
        for key in [key for key in self._asked if key[0] not in members]:
            del self._asked[key]
        for key in [key for key in self._serving if key[0] not in members]:
            del self._serving[key]
        self._snapshots = [s for s in self._snapshots if now - s.used_at < SNAPSHOT_S_MAX]
        for key in [key for key, snapshot in self._serving.items() if snapshot not in self._snapshots]:
            del self._serving[key]
        if not self._serving:
            self._snapshots.clear()

    def validate(self) -> None:
        assert len(self._snapshots) <= SNAPSHOTS_MAX
        assert all(snapshot in self._snapshots for snapshot in self._serving.values())
