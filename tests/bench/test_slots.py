"""The bench of software buses counts exactly, and draws."""

import pytest

from pluribus.bench import slots
from pluribus.bench.plot import draw


@pytest.mark.slow
def test_what_a_send_costs():
    found = slots.run(quick=True)
    assert all(goal["met"] for goal in found["goals"]), found["goals"]
    assert {curve["curve"] for curve in found["curves"]} == {"router", "no router", "centralised"}
    assert "messages a send" in draw("slots", found["curves"])
