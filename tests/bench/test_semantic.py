"""The bench of the semantic order feeds what it says, and nothing waits in the end."""

from random import Random

import pytest

from pluribus.bench import bench, semantic


def test_it_reports_a_cost_for_every_case_and_size(monkeypatch):
    monkeypatch.setattr(semantic, "SIZES", (1_000, 2_000))
    told: list[str] = []
    found = bench("semantic")(quick=True, progress=told.append, frames=1)
    assert len(found["results"]) == len(told) == 2 * len(semantic.CASES)
    assert all(row["unit"] == "ns/message" and row["value"] > 0 for row in found["results"])
    assert [goal["wanted"] for goal in found["goals"]] == [2.0] * len(semantic.CASES)


@pytest.mark.parametrize("case", semantic.CASES)
def test_streams_are_fifo_and_parents_exist(case):
    following: dict[int, int] = {}
    parents = set()
    for start in (0, 10_000):
        for frame in semantic.CASES[case](start, 10_000, Random(1)):
            assert frame.first == following.get(frame.sender, 0)
            following[frame.sender] = frame.first + frame.count
            parents |= set(frame.headers[0].of) - {None}
    assert all(number < following[sender] for sender, number in parents)
    assert sum(following.values()) == 20_000
