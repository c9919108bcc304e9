"""One run: counted rightly, decided by its seed, and the protocols behave as the survey says."""

from functools import cache

import msgspec
import pytest

from pluribus.core.errors import BadInput, Violation
from pluribus.sim.radio import PROTOCOLS, Setting, play
from pluribus.sim.radio.node import Data
from pluribus.sim.radio.run import World

SHORT = Setting(seconds=30.0, nodes=30, members=8)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_seed_gives_the_same_outcome(protocol: str):
    first, second = play(protocol, SHORT), play(protocol, SHORT)
    assert first == second and first.delivered > 0
    assert play(protocol, msgspec.structs.replace(SHORT, seed=1)) != first


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("speed", [0.0, 72.0])
def test_nobody_is_given_a_message_twice_and_states_are_valid(protocol: str, speed: float):
    world = World(protocol, msgspec.structs.replace(SHORT, speed_km_h=speed, seed=2))
    world.traffic()
    for second in range(1, 31):
        world.air.run(float(second))
        for node in world.nodes:
            getattr(node, "validate", lambda: None)()
    outcome = world.outcome()
    assert outcome.delivered == sum(map(len, world.got.values())) <= outcome.wanted
    assert outcome.data_transmissions <= outcome.transmissions == world.air.counted.transmissions
    assert outcome.sent == len(world.sent_at) > 40 and outcome.wanted == 7 * outcome.sent


def test_a_delivery_that_may_not_be_is_a_violation():
    world = World("flooding", SHORT)
    one, other = sorted(world.members)[:2]
    world.send(one, 0)
    data = Data(one, 0, 256)
    world.deliver(other, data)
    for member, found in ((other, data), (one, data), (other, Data(one, 9, 256))):
        with pytest.raises(Violation, match="was given message"):
            world.deliver(member, found)


def test_with_one_seed_all_protocols_see_the_same_world():
    worlds = [World(protocol, SHORT) for protocol in PROTOCOLS]
    assert len({world.members for world in worlds}) == 1
    for now in (0.0, 10.0, 20.0):
        near = {tuple(tuple(world.air.places.near(node, now)) for node in range(30)) for world in worlds}
        assert len(near) == 1
    outcomes = [play(protocol, SHORT) for protocol in PROTOCOLS]
    assert len({(outcome.sent, outcome.connected) for outcome in outcomes}) == 1


def test_every_member_is_near_and_nothing_is_lost_on_a_quiet_air():
    quiet = Setting(seconds=30.0, nodes=5, members=5, side_m=100.0, loss=0.0, speed_km_h=0.0, rate=1.0)
    outcome = play("flooding", quiet)
    assert outcome.connected == outcome.wanted
    assert outcome.ratio == 1.0 and outcome.transmissions_each == pytest.approx(5 / 4)


def test_a_setting_that_cannot_be_is_refused():
    with pytest.raises(BadInput, match="sources among"):
        play("flooding", Setting(members=60))
    with pytest.raises(BadInput, match="are over before"):
        play("flooding", Setting(seconds=10.0))
    with pytest.raises(BadInput, match="ODMRP"):
        play("carrier pigeon", Setting())


@cache
def mean(protocol: str, speed: float, what: str) -> float:
    runs = [play(protocol, Setting(seconds=50.0, speed_km_h=speed, seed=seed)) for seed in range(2)]
    return sum(getattr(run, what) for run in runs) / len(runs)


@pytest.mark.slow
def test_the_mesh_keeps_its_delivery_and_trees_lose_it():
    assert mean("ODMRP", 72.0, "ratio") > 0.9 * mean("ODMRP", 0.0, "ratio") > 0.8
    for tree in ("AMRIS", "AMRoute"):
        assert mean(tree, 72.0, "ratio") < 0.95 * mean(tree, 0.0, "ratio")
        assert mean(tree, 72.0, "ratio") < mean("ODMRP", 72.0, "ratio")


@pytest.mark.slow
def test_flooding_pays_most_data_transmissions_of_those_that_do_not_repeat():
    for speed in (0.0, 72.0):
        flood = mean("flooding", speed, "data_transmissions_each")
        for other in ("ODMRP", "AMRIS", "scoped flooding", *(["AMRoute"] if speed == 0 else [])):
            assert mean(other, speed, "data_transmissions_each") < flood
        assert mean("gossip", speed, "ratio") > 0.99, "what digests find is delivered, a path at sending or not"
    assert mean("hyper flooding", 72.0, "data_transmissions_each") > mean("flooding", 72.0, "data_transmissions_each")
