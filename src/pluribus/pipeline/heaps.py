"""Many small batches looked at together: a column of all of them costs a few calls of numpy, not some for each.

An answer to a request for many topics is thousands of packed batches with an event or two each. ``Heap`` takes their
heads as one table and computes every column from it. It is for plain batches only (see ``of``); others are cut and read
one by one (``tables.py``), which costs more and gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..pubsub.durable.batch import EVEN, HEAD_BYTES, ONE_TIME, StoredBatch
from ..runtime.clients.log_client import Range
from .columns import name_of_kind

Piece = tuple[int, int, bytes]
"""The number of a range, the offset of a batch's first event, the batch."""
_FIELDS = [
    ("magic", "u1"),
    ("version", "u1"),
    ("flags", "<u2"),
    ("events", "<u4"),
    ("session", "<i8"),
    ("first", "<i8"),
    ("sender", "<i8"),
    ("bodies", "<u4"),
    ("extra", "<u4"),
    ("topic", "<u2"),
    ("name", "<u2"),
    ("kind", "<u2"),
    ("spare", "<u2"),
]
"""A batch's head, as ``pubsub.durable.batch`` packs it."""


class Heap:
    """``of`` makes one. All columns are as long as there are events."""

    def __init__(self, ranges: Sequence[Range], pieces: Sequence[Piece], heads: Any) -> None:
        import numpy as np

        self._ranges = ranges
        self._pieces = pieces
        self._heads = heads
        self._each = heads["events"].astype("i8")
        self._columns = HEAD_BYTES + (heads["topic"].astype("i8") + 7) // 8 * 8
        """Where the columns of each batch begin."""
        self.count = int(self._each.sum())
        self._within = np.arange(self.count, dtype="i8") - np.repeat(np.cumsum(self._each) - self._each, self._each)

    @classmethod
    def of(cls, ranges: Sequence[Range], pieces: Sequence[Piece]) -> Heap | None:
        """A heap; None unless each batch is whole within its range, has one time and bodies of one length each, and no
        field that only some events have."""
        import numpy as np

        heads = np.frombuffer(b"".join([packed[:HEAD_BYTES] for _, _, packed in pieces]), _FIELDS)
        if (
            (heads["flags"] != ONE_TIME | EVEN).any()
            or heads["name"].any()
            or (heads["kind"] != heads["kind"][0]).any()
        ):
            return None
        low = np.array([offset for _, offset, _ in pieces], "i8")
        first = np.array([ranges[number][1] for number, _, _ in pieces], "i8")
        stop = np.array([ranges[number][2] for number, _, _ in pieces], "i8")
        if (low < first).any() or (low + heads["events"] > stop).any():
            return None
        return cls(ranges, pieces, heads)

    def batches(self) -> list[StoredBatch]:
        return [StoredBatch(packed, offset) for _, offset, packed in self._pieces]

    def _repeated(self, values: Any) -> Any:
        import numpy as np

        return np.repeat(values, self._each)

    @property
    def kind(self) -> int:
        """The encoding of all bodies."""
        return int(self._heads["kind"][0])

    @property
    def kinds(self) -> Any:
        import pyarrow as pa

        return pa.repeat(pa.scalar(name_of_kind(self.kind)), self.count)

    @property
    def topics(self) -> Any:
        import numpy as np
        import pyarrow as pa

        numbers = np.array([number for number, _, _ in self._pieces], "i4")
        used, places = np.unique(numbers, return_inverse=True)
        names = pa.array([self._ranges[number][0] for number in used.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(self._repeated(places.astype("i4")), names).dictionary_decode()

    @property
    def offsets(self) -> Any:
        import numpy as np

        return self._within + self._repeated(np.array([offset for _, offset, _ in self._pieces], "i8"))

    @property
    def sessions(self) -> Any:
        return self._repeated(self._heads["session"])

    @property
    def numbers(self) -> Any:
        return self._within + self._repeated(self._heads["first"])

    @property
    def senders(self) -> Any:
        return self._repeated(self._heads["sender"])

    @property
    def times(self) -> Any:
        import numpy as np

        at = self._columns.tolist()
        told = b"".join([packed[low : low + 8] for (_, _, packed), low in zip(self._pieces, at, strict=True)])
        return self._repeated(np.frombuffer(told, "<i8"))

    @property
    def data(self) -> bytes:
        """All bodies, one after another."""
        low = (self._columns + 8).tolist()
        return b"".join([packed[at:] for (_, _, packed), at in zip(self._pieces, low, strict=True)])

    @property
    def ends(self) -> Any:
        """Where each body starts in ``data``, and where the last one ends."""
        import numpy as np

        sizes = self._heads["bodies"].astype("i8") // self._each
        return np.concatenate([np.zeros(1, "i8"), np.cumsum(self._repeated(sizes))]).astype("i4")
