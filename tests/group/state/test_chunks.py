"""Snapshots in chunks against the bytes that they are of, over a road that loses and swaps."""

from itertools import pairwise
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
    pull = Pull(1, 1, chunk_bytes, 64 * chunk_bytes, 0.0)
    road: list[int] = []
    now = 0.0
    for _ in range(100_000):
        if pull.done:
            return pull.state()
        wanted = pull.wants(now)
        road += [index for run in wanted for index in range(*run) if random.random() >= loss]
        now += random.random() * 0.01
        if not road:
            now += 0.05
            road += [i for first, stop in pull.overdue(now) for i in range(first, stop) if random.random() >= loss]
            continue
        index = road.pop(random.randrange(len(road)))
        found = (b"", False) if index == 0 else snapshot.chunk(index)
        if found is not None:
            pull.take(index, found[0], now, last=found[1])
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
    pull = Pull(1, 1, 60, 1_000, 0.0)
    pull.take(1, bytes(60), 0.0, last=False)
    with pytest.raises(TooLarge):
        pull.take(2, bytes(60), 0.0, last=False)


CHUNK_BYTES = 10_000


def delivered(road_bytes_s: float, seconds: float) -> tuple[Pull, float]:
    """A pull over a road of so many bytes a second, and the longest that a chunk stood in the queue before it."""
    pull = Pull(1, 1, CHUNK_BYTES, 8 << 20, 0.0)
    queue: list[tuple[float, int]] = []
    now = free_at = longest_s = 0.0
    while now < seconds:
        for run in pull.wants(now):
            for index in range(*run):
                free_at = max(free_at, now) + CHUNK_BYTES / road_bytes_s
                queue.append((free_at, index))
                longest_s = max(longest_s, free_at - now)
        assert queue, "something is always on its way"
        now, index = queue.pop(0)
        pull.take(index, bytes(CHUNK_BYTES), now, last=False)
        pull.point = 0
    return pull, longest_s


def test_a_slow_road_is_not_flooded_and_a_quick_one_is_used():
    slow, queued_s = delivered(1e6, 5.0)
    assert slow.size > 0.9 * 5e6, "it is used all the time"
    assert queued_s < 0.5, "others wait no longer than that behind it"
    quick, queued_s = delivered(500e6, 1.0)
    assert quick.size > 0.8 * 500e6 and queued_s < 0.2


def test_what_is_not_answered_is_asked_for_less_and_less_often():
    pull = Pull(1, 1, CHUNK_BYTES, 8 << 20, 0.0)
    assert pull.wants(0.0)
    asked_at = [tick * 0.05 for tick in range(1, 400) if pull.overdue(tick * 0.05)]
    waits = [later - before for before, later in pairwise(asked_at)]
    assert waits == sorted(waits) and waits[0] < 0.5 and 2.5 < waits[-1] < 3.5


def test_requests_are_not_larger_than_what_is_answered():
    pull = Pull(1, 1, 10, 64 << 20, 0.0)
    pull._window = 1_000
    runs = pull.wants(0.0)
    assert runs[0][0] == 0 and runs[-1][1] == 1_000
    assert max(stop - first for first, stop in runs) == chunks.CHUNKS_PER_WANT_MAX


def test_chunks_of_another_snapshot_are_told_apart_also_if_its_provider_began_to_count_again():
    pull = Pull(1, 1, CHUNK_BYTES, 8 << 20, 0.0)
    assert pull.same(0, 40) and pull.same(0, 40)
    assert not pull.same(1, 40) and not pull.same(0, 41)
