"""The report: entries count once, whatever is killed when; summaries fold them."""

import random

import pytest

pytest.importorskip("pyspark.sql")

from pluribus.core.errors import BadInput
from pluribus.pipeline.backbone.report import FOLD, Entry, Report, Row, rows_of
from pluribus.pipeline.files import LocalFiles


def entry(number, run="r1", **counts):
    counts = {"read": 10, "good": 7, "dead": 1, "dropped": 1, "late": 1, **counts}
    return Entry(number, "q", run, [Row(run, "ticks", "2026-09-15", **counts)], {"ticks/a": 1}, {"t": number * 10})


def test_entries_count_once_and_are_folded(tmp_path):
    """Killed at random between preparing and committing: what is prepared and not committed does not count."""
    chance = random.Random(7)
    files = LocalFiles(str(tmp_path))
    report = Report(files)
    for number in range(2 * FOLD + 20):
        report.prepare(entry(number))
        if chance.random() < 0.3:
            report = Report(files)  # killed, and started again
            assert report.summary.number == number - 1
            assert report.prepared(number) is not None
            report.prepare(entry(number, run="r2"))
        found = report.prepared(number)
        report.commit(found)
        assert report.prepared(number) is None
    for again in (report, Report(files)):
        totals = again.totals()
        assert totals["read"] == 10 * (2 * FOLD + 20) and totals["adds_up"]
        assert again.totals("r1")["read"] + again.totals("r2")["read"] == totals["read"]
        assert again.summary.next == {"t": (2 * FOLD + 19) * 10} and again.summary.rules["ticks/a"] == 2 * FOLD + 20
    assert len(files.list("report")) < FOLD + 3


def test_what_does_not_add_up_says_so():
    assert not Row("r", "t", "d", read=3, good=1, late=1).adds_up


def test_rows_and_what_was_lost():
    def one(topic, day, verdict, rows, least, most):
        return {
            "table": "ticks",
            "topic": topic,
            "day": day,
            "verdict": verdict,
            "rows": rows,
            "least": least,
            "most": most,
        }

    counted = [
        one("a", "2026-01-01", "good", 3, 20, 25),
        one("a", "2026-01-02", "late", 1, 22, 22),
        one("b", "2026-01-02", "dead", 2, 0, 1),
        one("c", "2026-01-02", "good", 1, 7, 7),
    ]
    rows, following = rows_of("r", counted, {"a": 15, "b": 0})
    assert following == {"a": 26, "b": 2, "c": 8}
    found = {row.day: row for row in rows}
    assert found["2026-01-01"].lost == 26 - 15 - 4 and found["2026-01-02"].lost == 0
    assert (found["2026-01-02"].read, found["2026-01-02"].late, found["2026-01-02"].dead) == (4, 1, 2)
    assert all(row.adds_up for row in rows)


def test_a_damaged_part_is_said(tmp_path):
    files = LocalFiles(str(tmp_path))
    files.write("report/000000000001.done", b"{")
    with pytest.raises(BadInput, match="is no part of a report"):
        Report(files)
