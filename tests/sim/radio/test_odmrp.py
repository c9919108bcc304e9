"""ODMRP: the example of the survey, and what the forwarding group does."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.sim.radio.node import Data
from pluribus.sim.radio.odmrp import FORWARD_S, REFRESH_S, JoinQuery, JoinReply, Odmrp
from pluribus.sim.radio.places import reached

from .graph import Graph, line

S1, S2, I1, I2, R1, R2, R3 = range(7)
EXAMPLE = [(S1, I1), (S1, I2), (S2, I2), (I1, R1), (I2, R1), (I2, R2), (I2, R3)]


class Always:
    """A chance that is none: who has little of it is quick."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def example() -> Graph:
    """Both sources have sent; S1's query came to R1 by I1 first."""
    graph = Graph(Odmrp, 7, EXAMPLE, members=(S1, S2, R1, R2, R3), seed=4)
    broadcast = graph.air.broadcast

    def in_turn(node: int, word, within_s: float = 0.0) -> None:
        if isinstance(word, JoinQuery) and node in (I1, I2):  # I1 repeats before I2
            graph.air.later(0.002 if node == I1 else 0.02, broadcast, node, word)
        else:
            broadcast(node, word, within_s)

    graph.air.broadcast = in_turn
    for number, node in enumerate(graph.nodes):
        node.random = Always(number / 7)
    graph.send(S1)
    graph.run(1.0)
    graph.send(S2)
    graph.run(1.0)
    return graph


def test_the_example_of_the_survey():
    """R2 and R3 answer both sources by I2; R1 answers S1 by I1 and S2 by I2. The reply of I1 has an entry for S1 and
    none for S2, that of I2 for both."""
    graph = example()
    for member in (R2, R3):
        assert {source: route.next for source, route in graph.nodes[member].routes.items()} == {S1: I2, S2: I2}
    assert {source: route.next for source, route in graph.nodes[R1].routes.items()} == {S1: I1, S2: I2}

    def entries(node: int) -> set[tuple[int, int]]:
        return {entry for reply in graph.air.sent(JoinReply, node) for entry in reply.entries}

    assert entries(R1) == {(S1, I1), (S2, I2)}
    assert entries(R2) == entries(R3) == {(S1, I2), (S2, I2)}
    assert entries(I1) == {(S1, S1)}
    assert entries(I2) == {(S1, S1), (S2, S2)}
    assert {node.me for node in graph.nodes if node.forwards} == {I1, I2}, "the forwarding group"


def test_only_the_forwarding_group_forwards_and_everybody_gets_it_once():
    graph = example()  # with a seed by which I1 and I2, hidden from each other, do not collide at R1
    data = graph.send(S1, 1)
    graph.run(0.5)
    assert {sender for _, sender, word in graph.air.frames if word == data} == {S1, I1, I2}
    assert graph.got(data) == {S2: 1, R1: 1, R2: 1, R3: 1}


def test_the_first_message_rides_on_the_query():
    graph = Graph(Odmrp, 4, line(4), members=(0, 3))
    data = graph.send(0)
    graph.run(1.0)
    assert graph.got(data) == {3: 1} and not graph.air.sent(Data)
    assert graph.air.sent(JoinQuery)[0].carried == data.length
    later = graph.send(0, 1)
    graph.run(1.0)
    assert graph.got(later) == {3: 1} and len(graph.air.sent(Data)) == 3, "within the refresh there is no query"
    graph.run(REFRESH_S)
    graph.send(0, 2)
    assert len(graph.air.sent(JoinQuery, 0)) == 2


def test_flags_run_out_when_the_source_is_silent():
    graph = Graph(Odmrp, 4, line(4), members=(0, 3))
    graph.send(0)
    graph.run(1.0)
    assert [node.forwards for node in graph.nodes] == [False, True, True, False]
    graph.run(FORWARD_S)
    assert not any(node.forwards for node in graph.nodes)


def test_who_answers_no_more_is_served_no_more():
    graph = Graph(Odmrp, 4, line(4), members=(0, 3))
    graph.send(0)
    graph.run(1.0)
    graph.nodes[3].member = False
    for number in range(1, 8):
        graph.run(REFRESH_S)
        graph.send(0, number)
    graph.run(1.0)
    assert not any(node.forwards for node in graph.nodes)


def test_a_reply_that_is_not_passed_on_is_said_again():
    graph = Graph(Odmrp, 3, line(3), members=(0, 2))
    receive = graph.nodes[1].receive
    lost: list[JoinReply] = []

    def deaf_once(sender: int, word) -> None:
        if isinstance(word, JoinReply) and sender == 2 and not lost:
            lost.append(word)
        else:
            receive(sender, word)

    graph.nodes[1].receive = deaf_once
    graph.send(0)
    graph.run(1.0)
    assert lost and graph.nodes[1].forwards and len(graph.air.sent(JoinReply, 2)) == 2


@settings(max_examples=30, deadline=None)
@given(
    edges=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda edge: edge[0] != edge[1])),
    seed=st.integers(0, 99),
)
def test_nobody_is_given_a_message_twice_or_from_beyond(edges, seed):
    graph = Graph(Odmrp, 8, edges, members=(0, 3, 5, 7), seed=seed)
    for number in range(8):
        graph.send(0 if number % 2 else 3, number)
        graph.run(1.0)
        for node in graph.nodes:
            node.validate()
    assert len(graph.delivered) == len(set(graph.delivered))
    for member, data in graph.delivered:
        assert member in reached(graph.places, data.source, 0.0) & {0, 3, 5, 7} - {data.source}
