"""The bench of queues: small, but every part of it."""

import pytest

from pluribus.bench import queue
from pluribus.bench.peers.queues import QUEUES, queue_names
from pluribus.core.errors import BadInput, Unavailable


def test_depth_is_compared_and_a_selector_finds():
    found = queue._deep(3_000, 0.05, lambda text: None)
    cases = {row["case"]: row["value"] for row in found["results"]}
    assert cases["3,000 messages: open"] > 0 and cases["1,000 messages: rate"] > 0
    assert len(found["goals"]) == 4 and len(found["curves"][0]["points"]) == 2


def test_ours_and_a_table_are_measured_alike():
    assert queue._ours(queue.OWN, 100, 0.05) > 0
    rates = {(queue.OWN, 100): [80.0], ("sqlite", 100): [100.0]}
    (goal,) = queue._goals(rates)
    assert goal.met and goal.measured == pytest.approx(0.8)
    assert queue._turns(list(QUEUES))[:2] == [queue.OWN, "sqlite"]


@pytest.mark.parametrize("rival", QUEUES)
def test_every_peer_sends_receives_and_acknowledges(rival):
    try:
        assert QUEUES[rival](100, 10, 0.05) > 0
    except Unavailable as error:
        pytest.skip(str(error))


def test_peers_have_names():
    assert queue_names("all") == list(QUEUES) and queue_names("") == []
    with pytest.raises(BadInput, match="there is no peer 'kafka'"):
        queue_names("kafka")
