"""The comparison with other systems: that it is lossless and alike for all, on real processes; never who is faster."""

import pytest

from pluribus.bench import versus
from pluribus.bench.exchange import Measured
from pluribus.bench.peers import PEERS, flow, names, peer
from pluribus.core.errors import BadInput, Unavailable


@pytest.fixture(params=PEERS)
def known(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    try:
        with peer(name).endpoints():
            pass
    except Unavailable as error:
        pytest.skip(str(error))
    return name


def test_every_subscriber_has_every_message(known: str):
    assert flow.rate(known, 2, 100, 0.05) > 0


def test_there_and_back(known: str):
    trips = flow.trips(known, 20, 100, 0.0)
    assert len(trips) == 20 and all(trip > 0 for trip in trips)


def test_a_family_is_named_by_its_first_word():
    assert names("zmq") == ["zmq-tcp", "zmq-ipc"]
    assert names("zmq-ipc,zmq") == ["zmq-ipc", "zmq-tcp"]
    with pytest.raises(BadInput, match="no peer 'nonsense': use zmq-tcp"):
        names("zmq,nonsense")


def test_the_window_lets_a_publisher_send_whole_blocks():
    assert flow.window_of(100) == flow.WINDOW_MESSAGES
    assert flow.window_of(16_384) == flow.WINDOW_BYTES // 16_384
    assert flow.window_of(1 << 30) == 2 * flow.BLOCK


class Silent:
    def take(self, most: int) -> int:
        return 0

    def close(self) -> None: ...


def test_a_lost_message_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flow, "LOST_S", 0.0)
    with pytest.raises(Exception, match="10 messages were lost"):
        flow._take_all(Silent(), [10, 0], 1)


def test_ours_and_theirs_stand_in_one_report(monkeypatch: pytest.MonkeyPatch):
    ours = {1: 300.0, 4: 250.0}
    monkeypatch.setattr(versus, "exchange", lambda case: Measured(ours[case.members - 1], 1.0, 1.0))
    monkeypatch.setattr(versus, "batched", lambda count, size: 500.0)
    rates = {"zmq-tcp": 100.0, "zmq-ipc": 125.0}
    monkeypatch.setattr(flow, "rate", lambda name, receivers, size, seconds: rates[name])
    monkeypatch.setattr(flow, "trips", lambda name, rounds, size, pace_s: [100.0] * 3)
    monkeypatch.setattr(versus, "group_trips", lambda url, rounds, stack: [110.0] * 3)
    monkeypatch.setattr(versus, "asyncio_trips", lambda rounds: [80.0] * 3)
    found = versus.run("zmq", quick=True, progress=lambda text: None)
    goals = {goal["goal"]: (goal["measured"], goal["wanted"], goal["met"]) for goal in found["goals"]}
    assert goals == {
        "1→1 100 B: share of the batched limit": (0.6, 0.5, True),
        "1→1 100 B: times zmq": (2.4, 2.0, True),  # the better of the two counts
        "1→1 1024 B: times zmq": (2.4, 1.0, True),
        "1→1 16384 B: times zmq": (2.4, 1.0, True),
        "1→4 100 B: times zmq": (2.0, 2.0, True),
        "1→4 1024 B: times zmq": (2.0, 3.0, False),
        "1→4 16384 B: times zmq": (2.0, 3.0, False),
        "round trip p50 over plain asyncio UDP": (1.375, 1.5, True),
        "round trip p50 over zmq-tcp": (1.1, 1.0, False),
        "round trip p50 over zmq-ipc": (1.1, 1.0, False),
    }
    assert len([row for row in found["results"] if row["unit"] == "messages/s"]) == 6 * 3 + 1
    assert set(found["settings"]) == set(rates)
