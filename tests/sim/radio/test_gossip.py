"""Gossip on the air: chance first, then digests find what is missing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.layers.spread.gossip import fanout_for
from pluribus.sim.radio import gossip
from pluribus.sim.radio.gossip import AirDigest, AirGossip
from pluribus.sim.radio.node import Data
from pluribus.sim.radio.places import reached

from .graph import Graph, all_near, line


def test_in_a_crowd_the_number_of_transmissions_does_not_grow_with_it():
    counts = []
    for count in (20, 40):
        graph = Graph(AirGossip, count, all_near(count))
        graph.run(3.0)
        for number in range(30):
            graph.send(number % count, number)
            graph.run(0.5)
        assert len(graph.delivered) == 30 * (count - 1)
        counts.append(len(graph.air.sent(Data)) / 30)
    assert counts[0] < 1.5 * fanout_for(20) and counts[1] < 1.5 * fanout_for(40)


def test_a_digest_tells_what_is_missing_and_somebody_sends_it():
    graph = Graph(AirGossip, 3, [(0, 1)])
    data = [graph.send(0, number) for number in range(3)]
    graph.run(2.0)
    assert not any(graph.got(message)[2] for message in data)
    graph.places.draw([(0, 1), (1, 2)])  # 2 comes long after
    graph.run(5.0)
    assert all(graph.got(message) == {1: 1, 2: 1} for message in data)
    assert graph.nodes[1].repaired >= 3


def test_one_repetition_serves_all_who_lack_it():
    graph = Graph(AirGossip, 8, all_near(4))
    data = graph.send(0)
    graph.run(2.0)
    before = len(graph.air.sent(Data))
    graph.places.draw(all_near(8))
    graph.run(2.5)
    assert graph.got(data).keys() == set(range(1, 8))
    assert sum(node.repaired for node in graph.nodes) <= 3, "others hear it and spare theirs"
    assert len(graph.air.sent(Data)) - before <= 3 + 4


def test_a_digest_is_as_long_as_what_it_says():
    assert AirDigest(((3, ((0, 9),)), (4, ((0, 1), (3, 3))))).control == AirDigest(()).control + 4 + 8 + 4 + 16


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(gossip, "KEPT_MAX", 5)
    monkeypatch.setattr(gossip, "SOURCES_MAX", 2)
    graph = Graph(AirGossip, 4, line(4))
    for number in range(20):
        graph.send(number % 4, number)
        graph.run(0.2)
    for node in graph.nodes:
        node.validate()
        assert len(node.kept) == 5 and len(node.have) == 2


@settings(max_examples=25, deadline=None)
@given(
    edges=st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda edge: edge[0] != edge[1])),
    loss=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 99),
)
def test_whoever_meets_long_enough_has_the_same(edges, loss, seed):
    graph = Graph(AirGossip, 7, edges, loss=loss, seed=seed)
    data = [graph.send(number % 7, number) for number in range(14)]
    graph.run(60.0)
    for message in data:
        wanted = reached(graph.places, message.source, 0.0) - {message.source}
        assert graph.got(message) == dict.fromkeys(wanted, 1)
