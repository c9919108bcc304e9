"""The examples run, and answer what they should."""

import msgspec
import pytest

import pluribus
from pluribus.pipeline.jobs import Job
from pluribus.pubsub.durable.batch import pack
from pluribus.runtime.reader import LogReader
from pluribus.wire.bodies import DATA
from tests.features import ROOT
from tests.pipeline.test_source import url_of

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow, pytest.mark.timeout(200)]
NOON_S = 1_789_473_600


def test_the_dealing_room_answers_with_averages_and_alerts(spark, tmp_path):
    ticks = [("calm", second, 100.0 + second / 10) for second in range(40)]
    ticks += [("wild", second, 100.0 + 20 * (second == 12)) for second in range(40)]
    ticks.sort(key=lambda tick: tick[1])
    with pluribus.sync.connect("inproc://dealing", store=tmp_path / "keeper.db", serve="127.0.0.1:0") as bus:
        with LogReader(url_of(bus)) as keepers:
            times = [(NOON_S + second) * 1_000_000 for _, second, _ in ticks]
            bodies = [msgspec.msgpack.encode({"symbol": symbol, "price": price}) for symbol, _, price in ticks]
            keepers.put([pack("stocks/all", 5, 1, 0, DATA, times, bodies)])
        Job(spark, ROOT / "examples" / "dealing_averages.py", tmp_path / "checkpoint", {"url": url_of(bus)}).run(
            once=True
        )
        averages = [event.body for event in bus.log("averages").read().events()]
        alerts = [event.body for event in bus.log("alerts").read().events()]
    assert {body["symbol"] for body in averages} == {"calm", "wild"}
    assert {(body["symbol"], body["start"].timestamp() - NOON_S) for body in alerts} == {("wild", 5.0), ("wild", 10.0)}
