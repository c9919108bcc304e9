"""What a resend, a backfill and a compaction are asked for, before anything is done. Without Spark."""

import pytest

pytest.importorskip("pyspark.sql")

from pluribus.cli.app import run
from pluribus.core.errors import BadInput
from pluribus.pipeline import session
from pluribus.pipeline.backbone.configuration import load
from pluribus.pipeline.backbone.report import Entry, Report
from pluribus.pipeline.backbone.resending import resend
from pluribus.pipeline.files import files_of
from tests.pipeline.backbone.rooms import COUNTED


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "counted.toml"
    path.write_text(f'url = "client://127.0.0.1:1/x"\n{COUNTED}')
    return path


def test_a_rule_that_never_was_is_no_rule_that_nobody_broke(path):
    configuration = load(path)
    with pytest.raises(BadInput, match="there is no rule 'no seven': use one of body, no sevens, not 5"):
        resend(configuration, rule="no seven")
    with pytest.raises(BadInput, match="there is no silver table 'number': use one of numbers"):
        resend(configuration, table="number")
    report = Report(files_of(configuration.state))
    report.prepare(Entry(0, "q", "r", rules={"old/no eights": 8}))
    report.commit(Entry(0, "q", "r", rules={"old/no eights": 8}))
    with pytest.raises(BadInput, match="there is no rule 'no eights' of 'numbers': use one of body, no sevens, not 5"):
        resend(configuration, rule="no eights", table="numbers")
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):  # it is known, so keepers are asked
        resend(configuration, rule="no eights", table="old")


def test_what_cannot_be_done_is_said_before_spark_starts(path, tmp_path, monkeypatch, capsys):
    def opened(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "open_session", opened)
    assert run(["pipeline", "backfill", str(path), "--start", "2026-01-02", "--stop", "2026-01-01"]) == 2
    assert "let it begin before it ends" in capsys.readouterr().err
    assert run(["pipeline", "compact", str(tmp_path / "nowhere")]) == 2
    assert "is no archive" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
