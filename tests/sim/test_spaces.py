"""Tuple spaces of all kinds in the simulator: a sample of the campaign; seeds that once failed are in
``test_seeds_that_failed.py``."""

import pytest

from pluribus.sim.machinery.campaign import campaign


@pytest.mark.slow
def test_a_sample_of_the_campaign_breaks_no_promise():
    found = campaign("spaces", range(6_600_016, 6_600_019))
    assert (found["failures"], found["reasons"]) == ([], {})
    assert all(count > 10 for count in found["checkers"].values())
