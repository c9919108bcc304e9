"""``pluribus bench pubsub``: topics beside their group, and beside peers; what is missing is named."""

import json

import pytest

from pluribus.bench import peers, pubsub
from pluribus.bench.exchange import Measured
from pluribus.bench.stream import Flow, stream
from pluribus.cli import app
from pluribus.core.errors import PluribusError, Unavailable


def test_every_subscriber_reads_everything():
    found = stream(Flow(subscribers=2, topics=3, seconds=0.1))
    assert found.rate > 0 and found.sender_us > 0 and found.receiver_us > 0
    assert stream(Flow(typed=True, where=pubsub.CONDITION, seconds=0.1)).rate > 0


@pytest.mark.slow
def test_the_report_has_the_goals_and_names_what_is_missing(monkeypatch, capsys):
    whole = peers.peer

    def lacking(name):
        if name == "zenoh":
            raise Unavailable("the client of zenoh is not installed")
        return whole(name)

    monkeypatch.setattr(pubsub, "peer", lacking)
    assert app.run(["bench", "pubsub", "--quick", "--peers", "zmq-ipc,zenoh", "--json"]) in (0, 1)
    report = json.loads(capsys.readouterr().out)
    goals = [goal["goal"] for goal in report["goals"]]
    assert goals == [
        "topics, 1→1 100 B: share of the group's FIFO rate",
        "1→1 100 B: times zmq-ipc",
        "round trip over topics, times the group's",
    ]
    assert report["missing"] == {"zenoh": "the client of zenoh is not installed"}
    assert all(row["value"] > 0 for row in report["results"])


def test_a_peer_that_loses_messages_has_no_rate_and_is_named(monkeypatch: pytest.MonkeyPatch):
    ours = Measured(300.0, 1.0, 1.0)
    lost = iter([True, False, False] * 2)

    def theirs(rival: str, receivers: int, size: int, seconds: float) -> float:
        if rival == "nats" or next(lost):
            raise PluribusError("7 messages were lost")
        return 100.0

    monkeypatch.setattr(pubsub, "available", lambda wanted: (["zenoh", "nats"], {}))
    monkeypatch.setattr(pubsub, "RECEIVERS", (1,))
    monkeypatch.setattr(pubsub, "SIZES", (100, 1_024))
    monkeypatch.setattr(pubsub, "exchange", lambda case: ours)
    monkeypatch.setattr(pubsub, "stream", lambda flow: ours)
    monkeypatch.setattr(peers.flow, "rate", theirs)
    monkeypatch.setattr(pubsub, "group_trips", lambda url, rounds, stack: [100.0])
    monkeypatch.setattr(pubsub, "topic_trips", lambda rounds, size, pace_s: [120.0])
    report = pubsub.run(peers="zenoh,nats")
    assert {goal["goal"]: goal["measured"] for goal in report["goals"]} == {
        "topics, 1→1 100 B: share of the group's FIFO rate": 1.0,
        "1→1 100 B: times zenoh": 3.0,
        "1→1 1024 B: times zenoh": 3.0,
        "round trip over topics, times the group's": 1.2,
    }
    assert report["failed"]["nats, 1→1 100 B"] == "7 messages were lost"
    assert not any("nats" in row["case"] for row in report["results"])
