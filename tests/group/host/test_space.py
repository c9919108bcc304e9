"""Live and dead bytes by extents, against a dictionary of rows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.group.host import space as module
from pluribus.group.host.space import LogExtents

ROWS = st.lists(st.tuples(st.integers(1, 400), st.booleans(), st.floats(0, 1)), min_size=1, max_size=80)


@settings(max_examples=80)
@given(ROWS, st.sampled_from([100, 1_000]), st.sampled_from([4, 1_000]))
def test_every_byte_is_counted_once(rows, extent_bytes, extents_max):
    before = module.EXTENTS_MAX
    module.EXTENTS_MAX = extents_max
    sized = type("Sized", (LogExtents,), {"extent_bytes": extent_bytes})
    try:
        space, live = sized(), {}
        for row, (size, retained, release) in enumerate(rows):
            space.add(row, size, size if retained else 0)
            live[row] = size if retained else 0
            chosen = int(release * row)
            if live[chosen]:
                freed = max(live[chosen] // 2, 1)
                space.release(chosen, freed)
                live[chosen] -= freed
            space.validate()
            assert space.live == sum(live.values())
            assert not any(live[gone] for gone in range(space.first_row)), "what is needed is not forgotten"
            for dead in space.dead_rows(0, row + 1):
                assert not any(live[one] for one in dead)
        again = sized()
        again.restore(space.saved())
        assert again.saved() == space.saved() and (again.live, again.total) == (space.live, space.total)
    finally:
        module.EXTENTS_MAX = before


def test_the_deadest_extent_is_written_forward_when_more_is_dead_than_alive(monkeypatch):
    monkeypatch.setattr(LogExtents, "extent_bytes", 100)
    monkeypatch.setattr(LogExtents, "dead_bytes_max", 150)
    space = LogExtents()
    for row in range(6):
        space.add(row, 100, 100)
    for row, freed in ((0, 60), (1, 90), (2, 80), (5, 100)):
        space.release(row, freed)
    assert space.dead == 230 and space.live == 270 and space.bounded, "less is dead than alive"
    space.release(3, 70)
    assert not space.bounded
    assert space.poorest(6) == [range(1, 2), range(2, 3), range(3, 4), range(1)]
    assert space.poorest(0) == [], "rows behind the snapshot stay as they are"
    space.release(1, 10)
    assert space.dead_rows(0, 6) == [range(1, 2)] and space.poorest(6)[0] == range(2, 3)
