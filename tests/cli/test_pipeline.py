"""``pluribus pipeline``: mistakes are told in one sentence before Spark is started."""

import pytest

from pluribus.cli.app import run


@pytest.fixture
def no_spark(monkeypatch):
    def started(*arguments, **settings):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("pluribus.pipeline.session.session", started)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "there is no job"),
        ("x = 1\n", "has no function job(spark, options): write one"),
        ("def job(spark, options:\n    pass\n", "is not Python ("),
        ("x = '\0'\n", "is not Python ("),
    ],
)
def test_a_file_that_is_no_job(no_spark, tmp_path, capsys, text, sentence):
    job = tmp_path / "job.py"
    if text is not None:
        job.write_text(text)
    assert run(["pipeline", "run", str(job)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("pluribus: ") and sentence in said and said.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "def job(spark, options): pass",
        "from elsewhere import work as job",
        "from elsewhere import *",
        "job = lambda spark, options: {}",
    ],
)
def test_a_job_may_come_from_anywhere(tmp_path, text):
    from pluribus.pipeline.jobs import check_job

    job = tmp_path / "job.py"
    job.write_text(text)
    check_job(job)


def test_what_an_archive_is_not(no_spark, capsys, tmp_path):
    for arguments, sentence in (
        (["multicast://demo", "prices"], "is no member that serves clients: write client://"),
        (["client://127.0.0.1:1/demo", "a//b"], "a//b"),
        (["client://127.0.0.1:1/demo", "prices", "--gaps", "jump"], "is none of fail, skip"),
    ):
        words = ["pipeline", "archive", *arguments[:2], str(tmp_path / "kept"), *arguments[2:]]
        assert run(words) == 2
        assert sentence in capsys.readouterr().err


def test_where_an_archive_is_not_played(no_spark, capsys):
    for arguments, sentence in (
        (["multicast://demo"], "is no member that serves clients: write client://"),
        (["client://127.0.0.1:1/demo", "--topic", "a//b"], "a//b"),
    ):
        assert run(["pipeline", "replay", "s3://kept/prices", *arguments]) == 2
        assert sentence in capsys.readouterr().err
