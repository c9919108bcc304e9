"""The bench of conversations measures what it says."""

from pluribus.bench import bench, conversations


def test_it_reports_a_joiner_and_the_delay_of_orders(monkeypatch):
    monkeypatch.setattr(conversations, "MESSAGES", 10_000)
    monkeypatch.setattr(conversations, "MEMBERS", 2)
    monkeypatch.setattr(conversations, "ORDERS", ("semantic", "total"))
    found = bench("conversations")(quick=True)
    assert [row["unit"] for row in found["results"]] == ["s", "times", "ms", "ms"]
    assert all(row["value"] > 0 for row in found["results"]) and len(found["goals"]) == 3
