"""AMRIS: numbers grow away from the first source, members hang on one tree, and branches are rebuilt."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.sim.radio.amris import Amris, BranchRequest, JoinAck, JoinConf, JoinNak, JoinRequest, NewSession
from pluribus.sim.radio.neighbours import SILENT_S
from pluribus.sim.radio.node import Data
from pluribus.sim.radio.places import reached

from .graph import Graph, all_near, line


def grown(count: int, edges, members, seed: int = 0, seconds: float = 8.0) -> Graph:
    graph = Graph(Amris, count, edges, members, seed=seed)
    graph.run(seconds)
    return graph


def to_the_root(graph: Graph, node: int) -> list[int]:
    """From a node by its parents. Numbers must fall on the way, and parents know their children."""
    way = [node]
    while (parent := graph.nodes[way[-1]].parent) is not None:
        assert graph.nodes[parent].number < graph.nodes[way[-1]].number
        assert way[-1] in graph.nodes[parent].children
        way.append(parent)
    return way


@pytest.mark.parametrize("seed", range(4))
def test_numbers_increase_away_from_sid(seed: int):
    graph = grown(8, line(8), (0, 7), seed)
    numbers = [node.number for node in graph.nodes]
    assert numbers[0] == 0.0 and numbers == sorted(set(numbers))
    assert any(after - before > 1.5 for before, after in itertools.pairwise(numbers)), "not consecutive"
    assert [len(graph.air.sent(NewSession, node)) for node in range(8)] == [1] * 8


@pytest.mark.parametrize("seed", range(4))
def test_a_member_grafts_a_branch_through_nodes_that_are_none(seed: int):
    graph = grown(6, [*line(5), (1, 5)], (0, 4), seed)
    assert to_the_root(graph, 4) == [4, 3, 2, 1, 0]
    assert [node.on_tree for node in graph.nodes] == [True] * 5 + [False], "5 is not needed"
    assert graph.air.sent(JoinRequest) and graph.air.sent(JoinAck)


def test_messages_go_along_the_tree_both_ways_once():
    graph = grown(7, [*line(5), (2, 5), (5, 6)], (0, 4, 6))
    for number, source in enumerate((0, 4, 6)):
        data = graph.send(source, number)
        graph.run(1.0)
        assert graph.got(data) == {member: 1 for member in (0, 4, 6) if member != source}
    senders = [sender for _, sender, word in graph.air.frames if isinstance(word, Data) and word.source == 0]
    assert sorted(senders) == [0, 1, 2, 3, 5], "leaves do not repeat, everybody else does once"


def test_what_does_not_come_along_the_tree_is_not_taken():
    graph = grown(3, line(3), (0, 2))
    stranger, child = Data(2, 77, 10), Data(2, 78, 10)
    graph.nodes[0].receive(2, stranger)
    graph.nodes[0].receive(1, child)
    assert not graph.got(stranger), "2 is two hops away, not a child"
    assert graph.got(child) == {0: 1}


def test_br1_another_neighbour_is_asked_when_the_parent_is_gone():
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    graph = grown(4, edges, (0, 3))
    parent = graph.nodes[3].parent
    other = 3 - parent
    graph.nodes[other].number = 0.5  # it may be asked, whatever number chance gave it
    graph.places.draw([edge for edge in edges if edge != (parent, 3)])
    graph.run(SILENT_S + 4.0)
    assert to_the_root(graph, 3) == [3, other, 0] and graph.nodes[3].repairs >= 1
    data = graph.send(0)
    graph.run(1.0)
    assert graph.got(data) == {3: 1}


def test_br2_a_broadcast_finds_a_way_when_no_neighbour_will_do():
    """1 hangs on 0 directly; then it is two hops away, behind nodes with greater numbers than its own."""
    graph = grown(4, [(0, 1), (0, 2), (2, 3), (1, 3)], (0, 1))
    assert graph.nodes[1].parent == 0
    graph.nodes[2].number, graph.nodes[3].number = 50.0, 60.0
    graph.places.draw([(0, 2), (2, 3), (3, 1)])
    graph.run(SILENT_S + 6.0)
    assert graph.air.sent(BranchRequest, 1) and graph.air.sent(JoinConf)
    assert to_the_root(graph, 1) == [1, 3, 2, 0]
    assert 0 < graph.nodes[2].number < graph.nodes[3].number < graph.nodes[1].number
    data = graph.send(0)
    graph.run(1.0)
    assert graph.got(data) == {1: 1}


def test_a_nak_comes_from_who_may_not_be_a_parent():
    graph = grown(2, line(2), (0, 1))
    graph.nodes[1].receive(0, JoinRequest(graph.nodes[1].number - 1))
    graph.run(0.5)
    assert graph.air.sent(JoinNak, 1)


def test_who_was_away_takes_a_new_number_and_joins():
    graph = grown(5, [(0, 1), (1, 2), (3, 4)], (0, 2, 4))
    assert graph.nodes[4].number is None and not graph.nodes[4].on_tree
    graph.places.draw([(0, 1), (1, 2), (2, 3), (3, 4)])
    graph.run(12.0)
    assert to_the_root(graph, 4) == [4, 3, 2, 1, 0]


def test_who_is_not_needed_leaves_the_tree():
    graph = grown(4, line(4), (0, 3))
    graph.nodes[3].member = False
    graph.run(3 * SILENT_S + 5.0)
    assert [node.on_tree for node in graph.nodes] == [True, False, False, False]


edges_of_eight = st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda edge: edge[0] != edge[1]))


@settings(max_examples=30, deadline=None)
@given(first=edges_of_eight, second=edges_of_eight, seed=st.integers(0, 99))
def test_whatever_moves_there_is_no_circle_and_nothing_is_given_twice(first, second, seed):
    graph = Graph(Amris, 8, first, (0, 2, 5, 7), seed=seed)
    graph.run(6.0)
    graph.places.draw(second)
    for number in range(20):
        graph.send((0, 2, 5, 7)[number % 4], number)
        graph.run(1.0)
        for start in graph.nodes:
            start.validate()
            seen, node = {start.me}, start
            while node.parent is not None:
                node = graph.nodes[node.parent]
                assert node.me not in seen, "parents lead round"
                seen.add(node.me)
    assert len(graph.delivered) == len(set(graph.delivered))


@settings(max_examples=20, deadline=None)
@given(edges=edges_of_eight, seed=st.integers(0, 99))
def test_at_rest_every_member_that_can_be_reached_is_on_the_tree(edges, seed):
    graph = Graph(Amris, 8, edges, (0, 2, 5, 7), seed=seed)
    graph.run(25.0)
    for member in {2, 5, 7} & reached(graph.places, 0, 0.0):
        assert to_the_root(graph, member)[-1] == 0


def test_a_clique_is_a_star():
    graph = grown(5, all_near(5), (0, 1, 2, 3, 4))
    assert all(to_the_root(graph, member)[-1] == 0 for member in range(5))
