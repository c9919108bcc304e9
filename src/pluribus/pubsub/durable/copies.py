"""Copies of stored events under another topic, with everything else that they have: identity, sender, time, parent,
headers, body.

Events are copied in *runs*, which stand one after another in a packed batch: columns are cut and joined, and nobody
looks at an event. As many as fit are put together. A copy whose events have one session and consecutive numbers names
them in its head; others list them, in runs where these are long enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.ids import MessageId
from ...wire.bodies import Kind
from .batch import ONE_TIME, StoredBatch, StoredExtra, latest_of, pack_columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RUN_EVENTS = 4
"""With so many events a run, on average, identities are listed in runs."""
EVENTS_MOST = 16_384
BYTES_MOST = 2 << 20
"""About how much one copy holds, at most."""


class Opened:
    """The columns of a batch, each looked up once."""

    def __init__(self, batch: StoredBatch) -> None:
        self.batch = batch
        self.kind = batch.kind
        self.ends = batch.ends
        self.bodies = batch.bodies
        self.extra = batch.extra if batch.head.extra_bytes else StoredExtra()
        self.one_time = latest_of(batch.data, batch.head) if batch.head.flags & ONE_TIME else None

    @cached_property
    def times(self) -> NDArray[np.int64]:
        return self.batch.times

    @cached_property
    def sequences(self) -> NDArray[np.int64]:
        return self.batch.sequences


class Stretch(NamedTuple):
    """Events of a batch that stand one after another in its columns."""

    of: Opened
    low: int
    high: int
    others: tuple[dict[str, Any] | None, ...] = ()
    """The headers of the copies, one each; empty if they are those of the events."""
    kind_told: Kind | None = None
    """What the copies say of their bodies, if not what the events say."""

    @property
    def kind(self) -> Kind:
        return self.of.kind if self.kind_told is None else self.kind_told

    def headers(self) -> Sequence[dict[str, Any] | None]:
        return self.others or _some(self.of.extra.headers, self)

    @property
    def events(self) -> int:
        return self.high - self.low

    @property
    def bytes(self) -> int:
        return int(self.of.ends[self.high]) - int(self.of.ends[self.low])

    def ids(self) -> list[MessageId]:
        if self.of.extra.ids:
            return self.of.extra.ids[self.low : self.high]
        session = self.of.batch.head.session
        return [(session, number) for number in self.of.sequences[self.low : self.high].tolist()]

    def ends(self) -> tuple[MessageId, MessageId] | None:
        """The first identity and the last; None if those between are not consecutive."""
        of, low, last = self.of, self.low, self.high - 1
        if of.extra.ids:
            ids = self.ids()
            session, first = ids[0]
            consecutive = first > 0 and ids == [(session, first + at) for at in range(len(ids))]
            return (ids[0], ids[-1]) if consecutive else None
        session, first, end = of.batch.head.session, int(of.sequences[low]), int(of.sequences[last])
        return ((session, first), (session, end)) if end - first == last - low else None


def runs(batch: StoredBatch, wanted: NDArray[np.bool_]) -> Iterator[Stretch]:
    """The runs of the events that are wanted, one flag each; in pieces of which each fits into a copy."""
    import numpy as np

    opened = Opened(batch)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], wanted, [0]]).astype("i1"))).tolist()
    for low, high in zip(edges[::2], edges[1::2], strict=True):
        while low < high:
            fitting = int(opened.ends.searchsorted(int(opened.ends[low]) + BYTES_MOST, "right")) - 1
            stop = max(min(fitting, low + EVENTS_MOST, high), low + 1)
            yield Stretch(opened, low, stop)
            low = stop


def copies(topic: str, wanted: Iterable[Stretch]) -> Iterator[bytes]:
    """Packed batches of these events, in their order."""
    group: list[Stretch] = []
    events = size = 0
    for run in wanted:
        fits = events + run.events <= EVENTS_MOST and size + run.bytes <= BYTES_MOST
        if group and not (fits and run.kind == group[0].kind):
            yield together(topic, group)
            group, events, size = [], 0, 0
        group.append(run)
        events, size = events + run.events, size + run.bytes
    if group:
        yield together(topic, group)


def together(topic: str, several: Sequence[Stretch]) -> bytes:
    """One packed batch of these runs, whose bodies are of one kind."""
    session, first, ids, named = _named(several)
    senders = [one for run in several for one in _senders(run)] if _several_senders(several) else []
    parents = [one for run in several for one in _some(run.of.extra.parents, run)]
    headers = [one for run in several for one in run.headers()]
    extra: StoredExtra | None = None
    if ids or named or senders or any(parents) or any(headers):
        rare = (headers if any(headers) else [], parents if any(parents) else [])
        extra = StoredExtra(*rare, ids, senders, named)
    bodies = b"".join([run.of.bodies[int(run.of.ends[run.low]) : int(run.of.ends[run.high])] for run in several])
    ends = _ends(several)
    return pack_columns(
        topic,
        session,
        first,
        _senders(several[0])[0],
        several[0].kind,
        _times(several),
        ends,
        bodies,
        extra,
        sum(run.events for run in several),
    )


def _named(several: Sequence[Stretch]) -> tuple[int, int, list[MessageId], list[tuple[int, int, int]]]:
    """Session and first number, if these say all; else the list of all identities, or of runs of them."""
    found: list[tuple[int, int, int]] = []
    ends = [run.ends() for run in several]
    for one, run in zip(ends, several, strict=True):
        if one is None:
            ids = [one for run in several for one in run.ids()]
            return ids[0][0], 1, ids, []
        session, first = one[0]
        if found and found[-1][0] == session and found[-1][1] + found[-1][2] == first:
            found[-1] = (*found[-1][:2], found[-1][2] + run.events)
        else:
            found.append((session, first, run.events))
    session, first, _ = found[0]
    if len(found) == 1:
        return session, first, [], []
    if sum(count for *_, count in found) >= RUN_EVENTS * len(found):
        return session, 1, [], found
    return session, 1, [one for run in several for one in run.ids()], []


def _several_senders(several: Sequence[Stretch]) -> bool:
    return len({one for run in several for one in (_senders(run) if run.of.extra.senders else _senders(run)[:1])}) > 1


def _senders(run: Stretch) -> list[int]:
    senders = run.of.extra.senders
    return senders[run.low : run.high] if senders else [run.of.batch.head.sender] * run.events


def _some(column: Sequence[Any], run: Stretch) -> Sequence[Any]:
    return column[run.low : run.high] if column else [None] * run.events


def _times(several: Sequence[Stretch]) -> bytes | int:
    import numpy as np

    one = several[0].of.one_time
    if one is not None and all(run.of.one_time == one for run in several):
        return one
    return np.concatenate([run.of.times[run.low : run.high] for run in several]).astype("<i8").tobytes()


def _ends(several: Sequence[Stretch]) -> bytes | None:
    """Where each body ends; None if all are of one length and not empty."""
    import numpy as np

    sizes = np.concatenate([np.diff(run.of.ends[run.low : run.high + 1]) for run in several])
    if sizes[0] > 0 and bool((sizes == sizes[0]).all()):
        return None
    return np.concatenate([np.zeros(1, "i8"), np.cumsum(sizes)]).astype("<i4").tobytes()
