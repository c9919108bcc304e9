"""The bench of objects: small, but every part of it."""

import pytest

from pluribus.bench import objects
from pluribus.bench.peers import pyro
from pluribus.core.errors import BadInput, Unavailable


def test_messages_objects_and_calls_are_timed_between_two_processes():
    found = objects.round_trips(f"multicast://bench-{objects.free_port()}", 5)
    assert {what: len(values) for what, values in found.items()} == {
        "KQML message": 5,
        "object message": 5,
        "call": 5,
    }


def test_one_multicast_is_timed_against_several_unicasts():
    found = objects.cast(3, 2)
    assert {mode: len(values) for mode, values in found.items()} == {"unicast": 2, "multicast": 2}


def test_texts_and_local_messages():
    assert objects.parse_rate(1_000) > 0 and objects.local_rate(2_000) > 0


def test_calls_of_the_peer():
    try:
        assert len(pyro.trips(5, "x")) == 5
    except Unavailable as error:
        pytest.skip(str(error))


def test_goals_and_names():
    trips = {("tcp", "call"): [100.0], ("pyro5", "call"): [200.0]}
    casts = {("unicast", 2): [10.0], ("multicast", 2): [5.0]}
    found = objects.goals(trips, casts, [200_000.0], [200_000.0])
    assert [goal.met for goal in found] == [True, False, True, True]
    assert found[2].measured == 0.5 and found[3].measured == 0.5
    assert len(objects.goals({}, casts, [1.0], [1.0])) == 3
    assert objects.rival_names("") == [] and objects.rival_names("all") == ["pyro5"]
    with pytest.raises(BadInput, match="there is no peer 'corba'"):
        objects.rival_names("corba")
