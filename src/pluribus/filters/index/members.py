"""From pairs of an event and a cluster to pairs of an event and a member of the cluster, in a few calls of numpy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .slots import Cluster, Numbers


class Members:
    """Members of a small cluster are slots, of a large one words; keep them apart."""

    def __init__(self) -> None:
        self._events: list[int] = []
        self._which: list[int] = []
        self._numbers: dict[int, int] = {}
        self._arrays: list[Numbers] = []

    def __bool__(self) -> bool:
        return bool(self._events)

    def add(self, event: int, cluster: Cluster) -> None:
        number = self._numbers.get(id(cluster))
        if number is None:
            number = self._numbers[id(cluster)] = len(self._arrays)
            self._arrays.append(cluster.array())
        self._events.append(event)
        self._which.append(number)

    def pairs(self, piece: int) -> Iterator[tuple[Numbers, Numbers]]:
        """Pairs, in pieces of about ``piece`` pairs."""
        if not self._events:
            return
        members = np.concatenate(self._arrays)
        sizes = np.array([len(array) for array in self._arrays])
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        events, which = np.array(self._events), np.array(self._which)
        ends = np.cumsum(sizes[which])
        cuts = np.searchsorted(ends, np.arange(piece, ends[-1] + piece, piece))
        begin = 0
        for cut in cuts.tolist():
            end = min(cut + 1, len(events))
            if end > begin:
                some = which[begin:end]
                lengths = sizes[some]
                before = np.cumsum(lengths) - lengths
                at = np.repeat(starts[some] - before, lengths) + np.arange(lengths.sum())
                yield np.repeat(events[begin:end], lengths), members[at]
            begin = end
