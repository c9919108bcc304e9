"""The medium: what overlaps is lost where it overlaps, everything is paid for, and unicast frames are tried again."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.sim.radio import air as medium
from pluribus.sim.radio.air import ASK_S, HEAR_W, PREAMBLE_S, QUEUE_MAX, RATE_BIT_S, RETRIES, SEND_W, Air
from pluribus.sim.radio.node import HEADER_BYTES, Data
from pluribus.sim.radio.places import Drawn

from .graph import Ear, Graph, all_near, line

HIDDEN = [(0, 1), (1, 2)]
"""0 and 2 do not hear each other; 1 hears both."""


def frame(source: int = 0, number: int = 0, length: int = 100) -> Data:
    return Data(source, number, length)


def test_a_frame_reaches_whoever_is_in_range_and_nobody_else():
    graph = Graph(Ear, 4, [(0, 1), (0, 2), (2, 3)])
    graph.air.broadcast(0, frame())
    graph.run(1.0)
    assert [len(node.heard) for node in graph.nodes] == [0, 1, 1, 0]
    assert graph.air.counted.transmissions == graph.air.counted.data_transmissions == 1
    assert graph.air.counted.control_bytes == HEADER_BYTES + medium.MAC_BYTES and graph.air.counted.carried_bytes == 100


def test_a_frame_takes_its_time():
    graph = Graph(Ear, 2, [(0, 1)])
    took_s = PREAMBLE_S + (100 + HEADER_BYTES + medium.MAC_BYTES) * 8 / RATE_BIT_S
    graph.air.broadcast(0, frame())
    graph.run(took_s - 1e-6)
    assert not graph.nodes[1].heard
    graph.run(2e-6)
    assert graph.nodes[1].heard


def test_hidden_nodes_collide_in_the_middle_and_pay_for_it():
    """Both frames are lost at the node between, which pays the energy of hearing two all the same."""
    graph = Graph(Ear, 3, HIDDEN)
    graph.air.broadcast(0, frame(0))
    graph.air.later(0.000_1, graph.air.broadcast, 2, frame(2))
    graph.run(1.0)
    assert not graph.nodes[1].heard
    assert graph.air.counted.collided == 2 and graph.air.counted.received == 0
    collided_j = graph.air.counted.energy_j
    apart = Graph(Ear, 3, HIDDEN)
    apart.air.broadcast(0, frame(0))
    apart.air.later(0.5, apart.air.broadcast, 2, frame(2))
    apart.run(1.0)
    assert len(apart.nodes[1].heard) == 2 and apart.air.counted.collided == 0
    assert collided_j == pytest.approx(apart.air.counted.energy_j)
    took_s = PREAMBLE_S + (100 + HEADER_BYTES + medium.MAC_BYTES) * 8 / RATE_BIT_S
    assert collided_j == pytest.approx(2 * took_s * (SEND_W + HEAR_W))


def test_who_hears_somebody_waits():
    graph = Graph(Ear, 3, all_near(3))
    graph.air.broadcast(0, frame(0))
    graph.air.later(0.000_1, graph.air.broadcast, 2, frame(2))
    graph.run(1.0)
    assert [sender for sender, _ in graph.nodes[1].heard] == [0, 2] and graph.air.counted.collided == 0


def test_who_begins_in_the_same_slot_could_not_hear():
    graph = Graph(Ear, 3, all_near(3))
    graph.air.broadcast(0, frame(0))
    graph.air.broadcast(2, frame(2))
    graph.run(1.0)
    assert not any(node.heard for node in graph.nodes), "a node that sends hears nothing either"
    assert graph.air.counted.collided == 4


def test_a_long_frame_is_spoilt_by_a_short_one_in_its_middle():
    graph = Graph(Ear, 4, [(0, 1), (2, 1), (3, 1)])
    graph.air.broadcast(0, frame(0, length=1_000))
    graph.air.later(0.000_5, graph.air.broadcast, 2, frame(2, length=1))
    graph.air.later(0.002_5, graph.air.broadcast, 3, frame(3, length=1))
    graph.run(1.0)
    assert not graph.nodes[1].heard and graph.air.counted.collided == 3


def test_a_unicast_frame_silences_hidden_nodes():
    graph = Graph(Ear, 3, HIDDEN)
    graph.air.unicast(0, 1, frame(0))
    graph.air.later(0.000_1, graph.air.broadcast, 2, frame(2))
    graph.run(1.0)
    assert [sender for sender, _ in graph.nodes[1].heard] == [0, 2] and graph.air.counted.collided == 0


def test_a_unicast_frame_is_for_one_and_tried_again():
    graph = Graph(Ear, 3, all_near(3), loss=0.6, seed=3)
    failures: list[int] = []
    for number in range(40):
        graph.air.unicast(0, 1, frame(0, number), lambda: failures.append(1))
    graph.run(10.0)
    assert not graph.nodes[2].heard
    assert len(graph.nodes[1].heard) + len(failures) == 40 and len(graph.nodes[1].heard) >= 38
    assert graph.air.counted.transmissions > 60


def test_who_is_gone_fails_after_all_attempts_and_only_the_question_is_paid():
    graph = Graph(Ear, 2, [])
    failures: list[int] = []
    graph.air.unicast(0, 1, frame(), lambda: failures.append(1))
    graph.run(5.0)
    assert failures == [1] and graph.air.counted.failed == 1
    assert graph.air.counted.transmissions == RETRIES + 1 and graph.air.counted.data_transmissions == 0
    assert graph.air.counted.energy_j == pytest.approx((RETRIES + 1) * ASK_S * SEND_W)


def test_the_queue_is_bounded():
    graph = Graph(Ear, 2, [(0, 1)])
    failures: list[int] = []
    for number in range(QUEUE_MAX + 11):
        graph.air.broadcast(0, frame(0, number))
    graph.air.unicast(0, 1, frame(0, 9_999), lambda: failures.append(1))
    assert graph.air.waiting(0) == QUEUE_MAX
    graph.run(10.0)
    assert len(graph.nodes[1].heard) == QUEUE_MAX + 1, "one was on the air already"
    assert graph.air.counted.dropped == 11 and failures == [1]


class Slow:
    """An oracle: every pair of frames that overlap at a node is compared."""

    def __init__(self, places: Drawn, frames: list[tuple[float, float, int]]) -> None:
        self.heard = {}
        for start, end, sender in frames:
            for node in places.near(sender, 0.0):
                others = [
                    1
                    for other_start, other_end, other in frames
                    if (other_start, other) != (start, sender)
                    and other_start < end
                    and start < other_end
                    and (other == node or node in places.near(other, 0.0))
                ]
                self.heard[(node, sender, start)] = not others


@settings(max_examples=60, deadline=None)
@given(
    edges=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda edge: edge[0] != edge[1])),
    sends=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 5), st.integers(1, 900)), max_size=15),
)
def test_collisions_are_what_overlaps(edges, sends):
    """Whatever carrier sense made of it, a frame is heard exactly where nothing overlapped it."""
    places = Drawn(6, edges)
    air = Air(places, Random(1))
    began: list[tuple[float, float, int]] = []
    heard: set[tuple[int, int, int]] = set()
    numbers: dict[tuple[int, float], int] = {}
    ears = [Ear(node, air, frozenset(), lambda member, data: None, Random(0)) for node in range(6)]
    begin = air._begin

    def noted(node: int) -> None:
        outgoing = air._queues[node][0]
        began.append((air.now, air.now + outgoing.took_s, node))
        numbers[(node, air.now)] = outgoing.word.number
        begin(node)

    air._begin = noted
    for number, (at, sender, length) in enumerate(sends):
        air.later(at / 10_000, air.broadcast, sender, frame(sender, number, length))
    air.run(60.0)
    assert len(began) == len(sends)
    for ear in ears:
        heard |= {(ear.me, sender, word.number) for sender, word in ear.heard}
    expected = Slow(places, began).heard
    assert heard == {
        (node, sender, numbers[(sender, start)]) for (node, sender, start), fine in expected.items() if fine
    }
    assert air.counted.collided == sum(not fine for fine in expected.values())
    assert air.counted.received == len(heard)


def test_loss_takes_its_share():
    graph = Graph(Ear, 2, line(2), loss=0.25)
    for number in range(2_000):
        graph.air.later(number * 0.01, graph.air.broadcast, 0, frame(0, number))
    graph.run(30.0)
    assert 440 < graph.air.counted.lost < 560 and graph.air.counted.received == 2_000 - graph.air.counted.lost
