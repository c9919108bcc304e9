"""The bench of transactions runs, and moves every message once."""

from pluribus.bench import bench


def test_a_quick_run_compares_both_ways():
    outcome = bench("transactions")(quick=True, progress=lambda text: None)
    assert [row["unit"] for row in outcome["results"]] == ["moves/s"] * 2 + ["messages/s"] * 2
    assert all(row["value"] > 0 for row in outcome["results"]) and len(outcome["goals"]) == 2
