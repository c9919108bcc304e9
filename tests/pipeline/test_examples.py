"""The examples run, and answer what they should."""

import msgspec
import pytest

import pluribus
from pluribus.cli.app import run
from pluribus.pipeline.jobs import Job
from pluribus.pubsub.durable.batch import pack
from pluribus.runtime.clients.log_client import LogClient
from pluribus.wire.bodies import DATA
from tests.features import ROOT
from tests.pipeline.test_source import url_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
NOON_S = 1_789_473_600


def test_the_dealing_room_answers_with_averages_and_alerts(spark, tmp_path, capsys):
    ticks = [("calm", second, 100.0 + second / 10) for second in range(40)]
    ticks += [("wild", second, 100.0 + 20 * (second == 12)) for second in range(40)]
    ticks.sort(key=lambda tick: tick[1])
    with pluribus.sync.connect("inproc://dealing", store=tmp_path / "keeper.db", serve="127.0.0.1:0") as bus:
        with LogClient(url_of(bus)) as keepers:
            times = [(NOON_S + second) * 1_000_000 for _, second, _ in ticks]
            bodies = [msgspec.msgpack.encode({"symbol": symbol, "price": price}) for symbol, _, price in ticks]
            keepers.put([pack("stocks/all", 5, 1, 0, DATA, times, bodies)])
        example = str(ROOT / "examples" / "dealing_averages.py")
        Job(spark, example, tmp_path / "checkpoint", {"url": url_of(bus)}).run(once=True)
        averages = [event.body for event in bus.log("averages").read().events()]
        alerts = [event.body for event in bus.log("alerts").read().events()]
        # Again, as one who forgot the checkpoint would do it: nothing is swallowed, and nothing is there twice.
        assert run(["pipeline", "run", example, "--set", f"url={url_of(bus)}", "--once"]) == 2
        assert "belongs to another query" in capsys.readouterr().err
        assert len(bus.log("averages").read().events()) == len(averages)
    assert {body["symbol"] for body in averages} == {"calm", "wild"}
    assert {(body["symbol"], body["start"].timestamp() - NOON_S) for body in alerts} == {("wild", 5.0), ("wild", 10.0)}


TOWNS = {"Kirkby": (54.47, -2.35), "Appleby": (54.58, -2.49), "Langwathby": (54.69, -2.66), "York": (53.96, -1.08)}


def level(river, town, hour, level):
    lat, lon = TOWNS[town]
    return (
        hour,
        f"rivers/{river}/levels",
        {"river": river, "town": town, "lat": lat, "lon": lon, "level": level, "usual": 1.0},
    )


def test_the_river_floods_where_three_places_rise_and_a_model_warns(spark, tmp_path):
    """The Eden rises in three places near Penrith; the Tees in one of them twice, and in York, which is far away."""
    events = [
        level("Eden", "Kirkby", 0, 1.3),
        level("Tees", "Kirkby", 0.5, 1.6),
        level("Eden", "York", 1, 3.0),
        level("Tees", "Kirkby", 1.5, 1.7),
        level("Tees", "York", 1.6, 3.0),
        (1.7, "rivers/Tees/warnings", {"river": "Tees", "model": "flood", "risk": 0.9}),
        level("Eden", "Appleby", 2, 1.1),
        level("Eden", "Appleby", 3, 1.25),
        level("Eden", "Langwathby", 4, 1.5),
        (4.2, "rivers/Eden/warnings", {"river": "Eden", "model": "flood", "risk": 0.8}),
        level("Tees", "Appleby", 20, 1.0),
    ]
    with pluribus.sync.connect("inproc://rivers", store=tmp_path / "keeper.db", serve="127.0.0.1:0") as bus:
        with LogClient(url_of(bus)) as keepers:
            for number, (hour, topic, body) in enumerate(events, 1):
                time_us = int((NOON_S + hour * 3_600) * 1e6)
                keepers.put([pack(topic, 7, number, 0, DATA, [time_us], [msgspec.msgpack.encode(body)])])
        Job(spark, ROOT / "examples" / "river_floods.py", tmp_path / "checkpoint", {"url": url_of(bus)}).run(once=True)
        floods = {known.topic: bus.log(known.topic).read().events() for known in bus.durable.topics("floods/#")}
    assert list(floods) == ["floods/Eden"]
    (flood,) = floods["floods/Eden"]
    found = {name: flood.body[name] for name in ("one", "two", "three", "risk")}
    assert found == {"one": "Kirkby", "two": "Appleby", "three": "Langwathby", "risk": 0.8}
