"""Tuple spaces of all kinds in the simulator: a sample of the campaign."""

import pytest

from pluribus.sim.machinery.campaign import campaign


@pytest.mark.slow
def test_a_sample_of_the_campaign_breaks_no_promise():
    found = campaign("spaces", range(6_600_016, 6_600_022))
    assert (found["failures"], found["reasons"]) == ([], {})
    assert all(count > 10 for count in found["checkers"].values())
