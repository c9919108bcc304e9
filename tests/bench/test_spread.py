"""The bench of spreads has a row for every way, and curves; never how fast it is."""

from pathlib import Path

import pytest

from pluribus.bench import spread
from pluribus.bench.exchange import Case, Measured
from pluribus.bench.plot import draw
from pluribus.core.errors import BadInput

DOCS = Path(__file__).parents[2] / "docs"


def test_every_way_has_its_rows_and_multicast_is_compared_in_turns(monkeypatch: pytest.MonkeyPatch):
    ran: list[Case] = []

    def pretend(case: Case) -> Measured:
        ran.append(case)
        multicast = "multicast" in case.stack
        return Measured(200.0 if multicast else 100.0, 1.0 if multicast else 4.0, 1.0)

    monkeypatch.setattr(spread, "exchange", pretend)
    found = spread.run(quick=True)
    assert len(ran) == len(spread.REAL) and {case.members for case in ran} == {5}
    cases = [row["case"] for row in found["results"]]
    for way in spread.REAL:
        assert f"{way}, 4 receivers, 8,192 B" in cases
    for way in spread.SIMULATED:
        assert f"simulated: {way}, 1,000 hosts, 1,048,576 B: busiest host" in cases
    assert [(goal["measured"], goal["met"]) for goal in found["goals"]] == [(2.0, True), (0.25, True)]


def test_a_sweep_is_a_curve_for_every_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spread, "HOSTS_MAX", 1_000)
    found = spread.run(sweep="steps")
    assert [curve["curve"] for curve in found["curves"]] == [*spread.SIMULATED, spread.LEAST]
    tree = next(curve for curve in found["curves"] if curve["curve"] == "tree")
    assert tree["points"][:3] == [[2.0, 1.0], [4.0, 2.0], [8.0, 3.0]] and tree["points"][-1] == [1_000.0, 10.0]
    with pytest.raises(BadInput, match="seconds, steps, bytes"):
        spread.run(sweep="colour")


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["steps"])
def test_the_pictures_in_the_documents_are_what_the_command_draws(sweep: str):
    picture = draw("pluribus bench spread", spread.run(sweep=sweep)["curves"])
    assert (DOCS / f"spread-{sweep}.svg").read_text(encoding="utf-8") == picture
