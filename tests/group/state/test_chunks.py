"""Snapshots in chunks against the bytes that they are of, over a road that loses and swaps."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import TooLarge
from pluribus.group.state import chunks
from pluribus.group.state.chunks import Pull, Snapshot


def pulled(snapshot: Snapshot, seed: int, loss: float, chunk_bytes: int) -> bytes:
    """Everything that is asked for arrives, or not, in any order; the clock ticks when nothing is on its way."""
    random = Random(seed)
    pull = Pull(1, 1, chunk_bytes, 64 * chunk_bytes)
    road: list[int] = []
    for _ in range(100_000):
        if pull.done:
            return pull.state()
        wanted = pull.wants()
        if wanted:
            road += [index for index in range(*wanted) if random.random() >= loss]
        if not road:
            road += [i for first, stop in pull.overdue() for i in range(first, stop) if random.random() >= loss]
            continue
        index = road.pop(random.randrange(len(road)))
        found = (b"", False) if index == 0 else snapshot.chunk(index)
        if found is not None:
            pull.take(index, found[0], last=found[1])
    raise AssertionError("it never ends")


@given(st.binary(max_size=300), st.integers(1, 40), st.integers(0, 1_000), st.sampled_from([0.0, 0.3, 0.7]))
def test_what_is_pulled_is_what_was_taken(state, chunk_bytes, seed, loss):
    assert pulled(Snapshot(0, [], state, chunk_bytes), seed, loss, chunk_bytes) == state


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 40), st.integers(0, 1_000))
def test_parts_of_an_iterator_are_fetched_as_they_are_asked_for(parts, chunk_bytes, seed):
    assert pulled(Snapshot(0, [], iter(parts), chunk_bytes), seed, 0.3, chunk_bytes) == b"".join(parts)


def test_an_iterator_is_not_fetched_before_somebody_asks():
    fetched = []

    def parts():
        for part in (b"abc", b"def", b"ghi"):
            fetched.append(part)
            yield part

    snapshot = Snapshot(0, [], parts(), 3)
    assert snapshot.chunk(1) == (b"abc", False)
    assert fetched == [b"abc", b"def"], "one more than asked for, to know whether it is the last"
    assert snapshot.chunk(3) == (b"ghi", True)
    assert snapshot.chunk(4) is None


def test_a_state_over_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(chunks, "STATE_BYTES_MAX", 100)
    with pytest.raises(TooLarge, match="101 bytes exceeds 100"):
        Snapshot(0, [], bytes(101), 10)
    with pytest.raises(TooLarge, match="exceeds 100"):
        Snapshot(0, [], iter([bytes(60), bytes(60)]), 10).chunk(20)
    pull = Pull(1, 1, 60, 1_000)
    pull.take(1, bytes(60), last=False)
    with pytest.raises(TooLarge):
        pull.take(2, bytes(60), last=False)


def test_the_window_shrinks_when_chunks_are_lost_and_grows_when_they_come():
    pull = Pull(1, 1, 10, 100_000)
    first, stop = pull.wants()
    for index in range(first, stop):
        pull.take(index, b"x", last=False)
    first, wider = pull.wants()
    assert first == stop and wider - stop > stop
    assert pull.overdue() == []
    gaps = pull.overdue()
    assert gaps[0][0] == stop and sum(b - a for a, b in gaps) < wider - stop
