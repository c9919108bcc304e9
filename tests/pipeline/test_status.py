"""What is told of standing queries: added up, as text for Prometheus, as a page, over HTTP and from a file."""

import json
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

pytest.importorskip("pyspark.sql")

from pluribus.core.errors import BadInput, Unreachable
from pluribus.pipeline.status import FILE, Status, fetched, listener, page, prometheus, serve


def told(batch, rows, end, latest, seconds=0.5, late=0):
    """As Spark tells of a micro-batch."""
    source = {"numInputRows": rows, "endOffset": end, "latestOffset": latest}
    state = {"numRowsTotal": 7, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": late}
    return {
        "id": "x",
        "name": "alerts",
        "batchId": batch,
        "sources": [source],
        "stateOperators": [state],
        "durationMs": {"triggerExecution": seconds * 1_000},
    }


def fed():
    status = Status()
    first = told(0, 100, {"5f": {"a": 60, "b": 40}}, {"5f": {"a": 90, "b": 40}})
    status.feed("alerts", first)
    status.feed("alerts", first)
    kept = {"5f": {"@kept": "q:1:0", "@topics": 2, "@events": 150}}
    status.feed("alerts", told(1, 50, json.dumps(kept), json.dumps({"5f": {"@topics": 2, "@events": 158}}), late=3))
    return status


def test_progress_adds_up_and_lag_is_told_however_places_are_kept():
    report = fed().report()["queries"]["alerts"]
    assert (report["batches"], report["rows"], report["late"], report["lag"]) == (2, 150, 3, 8)
    assert report["rows_a_second"] == 150.0 and report["state_rows"] == 7 and report["state"] == "running"


def test_a_source_without_a_latest_offset_has_no_lag():
    status = Status()
    status.feed("files", told(0, 5, {"logOffset": 1}, None))
    assert status.report()["queries"]["files"]["lag"] is None
    assert "lag_events{" not in prometheus(status.report())


def test_a_listener_feeds_it():
    status = Status()
    ear = listener(status)
    progress = told(0, 5, {"5f": {"a": 5}}, {"5f": {"a": 9}})
    ear.onQueryStarted(type("Started", (), {"id": "x", "name": "alerts"}))
    ear.onQueryProgress(type("Progress", (), {"progress": type("P", (), {"json": json.dumps(progress)})}))
    ear.onQueryTerminated(type("Ended", (), {"id": "x", "exception": "it broke\nthere"}))
    report = status.report()["queries"]["alerts"]
    assert (report["rows"], report["lag"], report["state"], report["error"]) == (5, 4, "failed", "it broke")


def test_prometheus_and_a_page_and_a_file(tmp_path):
    status = fed()
    with serve(status, ":0") as url:
        text = urlopen(f"{url}/metrics").read().decode()
        assert 'pluribus_pipeline_lag_events{query="alerts"} 8' in text and 'up{query="alerts"} 1' in text
        shown = urlopen(url).read().decode()
        assert "<td>alerts</td>" in shown and "<td>150</td>" in shown
        assert fetched(url)["queries"]["alerts"]["rows"] == 150
        with pytest.raises(HTTPError):
            urlopen(f"{url}/elsewhere")
    status.write(tmp_path / FILE)
    assert fetched(str(tmp_path)) == json.loads((tmp_path / FILE).read_text())
    odd = {"queries": {'<a "b">': status.report()["queries"]["alerts"]}}
    assert r'query="<a \"b\">"' in prometheus(odd) and "&lt;a &quot;b&quot;&gt;" in page(odd)


def test_where_there_is_no_status_it_is_said(tmp_path):
    with pytest.raises(BadInput, match="name the --checkpoint"):
        fetched(str(tmp_path))
    with pytest.raises(Unreachable, match="no status at"):
        fetched("http://127.0.0.1:9")
    with pytest.raises(BadInput, match="is no address"), serve(Status(), "nowhere"):
        pass
