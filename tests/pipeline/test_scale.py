"""What a load needs, computed and played; and the commands that tell it."""

import json

import pytest

pytest.importorskip("pyspark.sql")

from pluribus.cli.app import run
from pluribus.core.errors import BadInput
from pluribus.pipeline.busy_log import Site, simulated
from pluribus.pipeline.scale import DAY_S, Load, Means, estimate, play, shares
from pluribus.pipeline.sink import log_of
from pluribus.pipeline.status import FILE, Status


def test_shares_are_those_of_the_sink_and_add_up():
    load = Load(topics=500, skew=0.0)
    dealt = shares(load, 4, 1)
    assert sum(dealt) == pytest.approx(1)
    names = [log_of(f"topic/{number:06d}", 4) for number in range(500)]
    assert dealt == pytest.approx([names.count(log) / 500 for log in range(4)])
    assert max(shares(Load(topics=500, skew=1.0), 4, 1)) > max(dealt), "busy topics make one log busier"


def test_a_log_that_is_too_slow_falls_behind():
    load = Load(events_a_day=DAY_S * 1_000.0, peak=1.0)
    assert play(load, Means(log_events_s=5_000), 1.0, 1)["queue_max"] == 0
    slow = play(load, Means(log_events_s=900), 1.0, 1)
    assert slow["behind_in_the_end"] == pytest.approx(3_600 * 100, rel=0.2)
    assert not estimate(load, Means(logs=1, log_events_s=900))["logs"]["fits"]


def test_a_billion_a_day_on_sixteen_logs(capsys):
    assert run(["pipeline", "scale", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["events_s"] == round(1e9 / DAY_S) and found["logs"]["fits"]
    assert found["keepers"]["processes"] == 48 and found["spark"]["place_bytes"] < 10_240
    assert found["played"]["behind_in_the_end"] == 0
    with pytest.raises(BadInput, match="use more logs"):
        estimate(Load(topics=3_000_000), Means(logs=16))


def test_the_status_of_a_job_is_shown(tmp_path, capsys):
    status = Status()
    told = {"numInputRows": 5, "endOffset": {"5f": {"a": 5}}, "latestOffset": {"5f": {"a": 9}}}
    status.feed("alerts", {"batchId": 0, "sources": [told], "durationMs": {"triggerExecution": 100}})
    status.write(tmp_path / FILE)
    assert run(["pipeline", "status", str(tmp_path)]) == 0
    assert "alerts running: 5 rows in 1 batches, 50/s, 4 behind" in capsys.readouterr().out
    assert run(["pipeline", "status", str(tmp_path), "--prometheus"]) == 0
    assert 'pluribus_pipeline_lag_events{query="alerts"} 4' in capsys.readouterr().out
    assert run(["pipeline", "status", str(tmp_path / "elsewhere")]) == 2


def test_the_busiest_log_is_carried_by_keepers_in_the_simulator(capsys):
    """All voters have every event, and what they write is what is computed with on paper, but for a little more."""
    few = ["--events", "2e7", "--topics", "200", "--logs", "4", "--simulate", "2"]
    assert run(["pipeline", "scale", *few, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    carried, rate = found["simulated"], found["logs"]["hottest_events_s"]
    assert carried["events"] == pytest.approx(2 * rate, rel=0.3)
    assert 200 < carried["disk_bytes_an_event"] < 2 * 224
    assert carried["leader_sends_bytes_s"] > 2 * 200 * rate * 0.7, "to two other voters"
    assert 0.002 < carried["wait_p50_s"] < 0.02 and carried["wait_p99_s"] < 0.1
    again = simulated({"a": 0.7, "b": 0.3}, 500.0, 100, 1.0, 7, Site())
    assert again == simulated({"a": 0.7, "b": 0.3}, 500.0, 100, 1.0, 7, Site()), "the same seed is the same run"
    slow = simulated({"a": 1.0}, 500.0, 100, 1.0, 7, Site(disk_s=0.02))
    assert slow["wait_p50_s"] > again["wait_p50_s"] + 0.015
    with pytest.raises(BadInput, match="simulate more or fewer seconds"):
        simulated({"a": 1.0}, 1e6, 100, 60.0, 1, Site())
