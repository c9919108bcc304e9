"""Configurations: what is wrong is said with file, line and remedy, before Spark starts."""

import re

import pytest

from pluribus.cli.app import run
from pluribus.core.errors import BadInput
from tests.features import ROOT

pytest.importorskip("pyspark.sql")

from pluribus.pipeline import session
from pluribus.pipeline.backbone.configuration import is_uri, load, pattern_of, seconds
from pluribus.pipeline.backbone.picture import picture

GOOD = """
name = "dealing"
url = "client://127.0.0.1:7400/dealing"
state = "state"
tables = "tables"

[[silver]]
name = "ticks"
topics = "stocks/#"
fields = "symbol string, price double"

[[silver.rules]]
name = "a price"
where = "price > 0"

[[silver.rules]]
name = "a symbol"
where = "symbol IS NOT NULL"

[[enrich]]
name = "known"
of = "ticks"
table = "stocks.csv"
columns = "symbol string, sector string"
on = ["symbol"]

[[gold]]
name = "averages"
of = "known"
kind = "windows"
width = "10 seconds"
by = ["symbol"]
topic = "averages/{symbol}"
values = { mean = "avg(price)" }
"""


def written(tmp_path, text):
    path = tmp_path / "c.toml"
    path.write_text(text)
    (tmp_path / "stocks.csv").write_text("sector,symbol\nfood,calm\n")
    return path


def test_a_good_one_is_read_and_its_folders_are_beside_it(tmp_path):
    found = load(written(tmp_path, GOOD))
    assert found.state == str(tmp_path / "state") and found.enrich[0].table == str(tmp_path / "stocks.csv")
    assert found.silver[0].late_s == 10.0 and [rule.otherwise for rule in found.silver[0].rules] == ["aside"] * 2
    assert found.inputs("known") == ["ticks"] and not found.joined("known")
    elsewhere = load(written(tmp_path, GOOD.replace('"tables"', '"s3a://bucket/tables"')))
    assert elsewhere.tables == "s3a://bucket/tables"


BAD = [
    ("price > 0", "price >", r"line 14, silver 'ticks', rule 'a price': .*character"),
    ("price > 0", "prize > 0", r"line 14, .*no field prize"),
    ("symbol IS NOT NULL", "symbol > 3", r"line 18, silver 'ticks', rule 'a symbol': "),
    ("price double", "price money", r"line 10, silver 'ticks': option fields has 'price money'"),
    ('topics = "stocks/#"', 'topics = "stocks/#/x"', r"line 9, silver 'ticks': .*put it last"),
    ('topics = "stocks/#"', 'topics = "#"', r"line 9, silver 'ticks': topics '#' would read what is written"),
    ('kind = "windows"', 'kind = "window"', r"line 30: Invalid enum value 'window'"),
    ('width = "10 seconds"', 'width = "10 parsecs"', r"line 31, gold 'averages': '10 parsecs' is no span"),
    ('by = ["symbol"]', 'by = ["simbol"]', r"line 32, gold 'averages': there is no column 'simbol'"),
    ("avg(price)", "average(price)", r"line 34, gold 'averages': mean = 'average\(price\)' is no aggregate"),
    ("mean =", "late =", r"'late' cannot be the name of a value"),
    ("averages/{symbol}", "averages/{name}", r"line 33, gold 'averages': there is no column 'name'"),
    ('of = "known"', 'of = "unknown"', r"line 29, gold 'averages': there is no table 'unknown' before this one"),
    ('on = ["symbol"]', "on = []", r"line 25, enrich 'known': on = \[\] joins everything"),
    ("sector string", "price string", r"line 24, enrich 'known': 'price' is a column of 'ticks' already"),
    ('"stocks.csv"', '"socks.csv"', r"line 23, enrich 'known': there is no table /.*/socks.csv: write where it is"),
    (
        "sector string",
        "sektor string",
        r"line 23, enrich 'known': the header of .* has no 'sektor': it has sector, sym",
    ),
    ('name = "dealing"', 'name = "a/b"', r"line 2: the name 'a/b' is none"),
    ('url = "client', 'url = "http', r"line 3: "),
    ('tables = "tables"', 'tables = "tables"\nspeed = 3', r"line \d+: Object contains unknown field `speed`"),
    ('[[enrich]]\nname = "known"', '[[enrich]]\nname = "ticks"', r"line 21, enrich: the name 'ticks' is taken"),
    ("[[gold]]", "[[gold", r"is no TOML: .*line 27"),
]


@pytest.mark.parametrize(("old", "new", "said"), BAD, ids=[new.splitlines()[-1][:30] for _, new, _ in BAD])
def test_what_is_wrong_is_said_with_its_line(tmp_path, old, new, said, capsys):
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(BadInput, match=said) as error:
        load(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_wrong_one_never_starts_spark(tmp_path, capsys, monkeypatch):
    def opened(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "open_session", opened)
    path = written(tmp_path, GOOD.replace("price > 0", "prize > 0"))
    for verb in (["backbone"], ["backfill", "--start", "2026-01-01", "--stop", "2026-01-02"], ["report"], ["resend"]):
        assert run(["pipeline", verb[0], str(path), *verb[1:]]) == 2
        told = capsys.readouterr().err
        assert "line 14, silver 'ticks', rule 'a price'" in told and "no field prize" in told


def test_a_state_that_only_spark_reaches_is_read_by_spark(tmp_path, monkeypatch):
    asked = []

    def opened(master, app, **settings):
        asked.append((master, settings))
        raise BadInput("that is enough")

    monkeypatch.setattr(session, "open_session", opened)
    path = written(tmp_path, GOOD.replace('"state"', '"s3a://bucket/state"'))
    options = ["--master", "spark://head:7077", "--conf", "spark.hadoop.fs.s3a.endpoint=http://store"]
    for verb in ("report", "resend"):
        assert run(["pipeline", verb, str(path), *options]) == 2
    assert asked == [("spark://head:7077", {"spark.hadoop.fs.s3a.endpoint": "http://store"})] * 2


def test_small_words(tmp_path):
    assert seconds("2 hours") == 7_200 and seconds("500 milliseconds") == 0.5
    assert is_uri("s3a://b/x") and is_uri("file:///x") and not is_uri("/x/y") and not is_uri("x.csv")
    assert pattern_of("a/b") == "a/b" and pattern_of("a/{x}/c") == "a/#" and pattern_of("a/b{x}") == "a/#"


@pytest.mark.parametrize("name", ["dealing", "river"])
def test_the_picture_is_drawn_from_the_configuration(name, tmp_path, capsys):
    path = ROOT / "examples" / f"{name}_backbone.toml"
    assert run(["pipeline", "picture", str(path), "--out", str(tmp_path / "flow.svg")]) == 0
    drawn = (tmp_path / "flow.svg").read_text()
    found = load(path, "client://127.0.0.1:7400/x")
    assert drawn == picture(found)
    for one in (*found.silver, *found.enrich, *found.gold):
        assert f">{one.name}<" in drawn
    assert len(re.findall("<path ", drawn)) >= len(found.gold) * 2
    if name == "dealing":
        assert (ROOT / "docs" / "backbone-flow.svg").read_text() == drawn, "make it anew: pluribus pipeline picture"
