"""Subscriptions by context: a place and another condition hold together, whatever is written in either."""

import pytest

from pluribus.core.errors import BadFilter
from pluribus.pubsub.places import Near

HERE, FAR = {"lat": 50.0, "lon": 8.0}, {"lat": -33.0, "lon": 151.0}


@pytest.mark.parametrize("where", ["free OR dear", "free -- and more", "free /* ( */"])
def test_another_condition_never_makes_a_place_near(where: str):
    near = Near(50.0, 8.0, 2_000).condition(where).predicate()
    assert near({**HERE, "free": True}) is True
    assert near({**FAR, "free": True}) is False
    assert near({**HERE, "free": False, "dear": False}) is False


def test_half_a_condition_is_refused():
    with pytest.raises(BadFilter):
        Near(50.0, 8.0, 2_000).condition("free) OR (TRUE")
