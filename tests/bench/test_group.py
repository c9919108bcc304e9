"""The bench of groups measures what it says, on real processes; never how fast it is."""

import pytest

from pluribus.bench.group import run


@pytest.mark.parametrize(("order", "members"), [("fifo", 3), ("safe", 2)])
def test_every_receiver_gets_everything(order: str, members: int):
    found = run(quick=True, order=order, size=1_000, members=members)
    assert [row["unit"] for row in found["results"]] == ["messages/s"] * 2
    assert found["results"][0]["case"] == f"{order}, 1000 B, {members} members"
    assert all(row["value"] > 0 and row["runs"] == 1 for row in found["results"])
