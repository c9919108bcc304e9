"""The bench of the index measures the workload that it says, and the index agrees with the scan in it."""

import pytest

from pluribus.bench import bench, match


def test_it_reports_rates_goals_and_curves():
    told: list[str] = []
    found = bench("match")(quick=True, subscriptions=1_000, progress=told.append, frames=1)
    cases = {row["case"]: row for row in found["results"]}
    for name in ("one equality, four ranges", "ranges only"):
        assert cases[f"1,000 subscriptions, {name}"]["unit"] == "events/s"
        assert cases[f"1,000 subscriptions, {name}: linear scan"]["value"] > 0
    assert [goal["wanted"] for goal in found["goals"]] == [10_000, 20]
    assert [[size for size, _ in curve["points"]] for curve in found["curves"]] == [[10.0, 100.0, 1_000.0]] * 2
    assert len(told) == 6


def test_the_whole_run_grows_to_ten_times_as_many():
    found = bench("match")(subscriptions=200)
    assert [point[0] for point in found["curves"][0]["points"]] == [2.0, 20.0, 200.0, 2_000.0]
    assert [goal["wanted"] for goal in found["goals"]] == [10_000, 20, 1_000]


@pytest.mark.parametrize("equality", [True, False])
def test_a_thousandth_of_the_subscriptions_match(equality):
    workload = match.Workload(4_000, equality)
    index = match.Index()
    for key, each in enumerate(workload.filters()):
        index.add(key, each)
    found = index.match(workload.events(2_000))
    assert sum(map(len, found)) / (2_000 * 4_000) == pytest.approx(match.SHARE, rel=0.5)


def test_the_same_numbers_make_the_same_workload():
    one, other = (match.Workload(50, True) for _ in range(2))
    assert list(one.filters()) == list(other.filters())
    assert one.events(5) == other.events(5)
