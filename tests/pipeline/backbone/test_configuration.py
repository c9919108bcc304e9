"""Configurations: what is wrong is said with file, line and remedy, before Spark starts."""

import re

import pytest

from pluribus.cli.app import run
from pluribus.core.errors import BadInput
from tests.features import ROOT

pytest.importorskip("pyspark.sql")

from pluribus.pipeline import session
from pluribus.pipeline.backbone.configuration import is_uri, load
from pluribus.pipeline.backbone.parts import pattern_of, seconds
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
        r"line 23, enrich 'known': .* has no column 'sektor': it has sector, sym",
    ),
    ('name = "dealing"', 'name = "a/b"', r"line 2: the name 'a/b' is none"),
    ('url = "client', 'url = "http', r"line 3: "),
    ('tables = "tables"', 'tables = "tables"\nspeed = 3', r"line \d+: Object contains unknown field `speed`"),
    ('[[enrich]]\nname = "known"', '[[enrich]]\nname = "ticks"', r"line 21, enrich: the name 'ticks' is taken"),
    ('width = "10 seconds"', 'width = "0 seconds"', r"line 31, gold 'averages': '0 seconds' is no time at all"),
    (
        'by = ["symbol"]\ntopic',
        'every = "20 seconds"\nby = ["symbol"]\ntopic',
        r"line 32, gold 'averages': every = '20 seconds' is longer than width",
    ),
    ("price double", "price double, Price double", r"line 10, silver 'ticks': .* 'price' and 'Price', which Spark"),
    ("price double", "price double, day date", r"line 10, silver 'ticks': 'day' is the column by which tables are"),
    ("price double", "price double, Time date", r"line 10, silver 'ticks': the field 'Time' is a name of the envelope"),
    (
        'price double"',
        'price double"\nlevels = { price = 2 }',
        r"line 11, silver 'ticks': there would be 'price' twice",
    ),
    ("avg(price)", "avg(symbol)", r"line 34, gold 'averages': 'symbol' is string, and no number"),
    ("mean =", "symbol =", r"line 34, gold 'averages': there would be 'symbol' twice"),
    (
        'by = ["symbol"]\ntopic',
        'by = ["symbol"]\nk = 3\ntopic',
        r"line 33, gold 'averages': kind = 'windows' makes nothing of k: leave it out",
    ),
    (
        'on = ["symbol"]',
        'on = ["symbol"]\nwithin = "1 hour"',
        r"line 26, enrich 'known': .* makes nothing of within: leave it out",
    ),
    (
        'columns = "symbol string',
        'columns = "symbol bigint',
        r"line 25, .*columns: 'symbol' is bigint there, and string",
    ),
    ("sector string", "id string", r"line 24, enrich 'known': 'id' is a column of 'ticks' already"),
    ('of = "known"', 'of = ["known", "known"]', r"line 29, gold 'averages': 'known' is named twice"),
    (
        '"client://127.0.0.1:7400/dealing"',
        '"client://a:1/x client://b:1/x"',
        r"line 3: a backbone reads and writes one log",
    ),
    (
        'tables = "tables"',
        'tables = "tables"\ntiers = { compact_bytes = 0 }',
        r"line 6, tiers: compact_bytes must be 1",
    ),
    ("[[gold]]", "[[gold", r"is no TOML: .*line 27"),
]


@pytest.mark.parametrize(("old", "new", "said"), BAD, ids=[new.splitlines()[-1][:30] for _, new, _ in BAD])
def test_what_is_wrong_is_said_with_its_line(tmp_path, old, new, said, capsys):
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(BadInput, match=said) as error:
        load(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


SECOND = """
[[gold]]
name = "best"
of = "ticks"
kind = "top"
width = "10 seconds"
by = ["symbol"]
k = 1
score = "high"
topic = "best"
values = { high = "max(price)" }
"""


def test_what_is_missing_is_missed_in_its_own_table_and_not_in_the_next(tmp_path):
    missing = GOOD.replace('width = "10 seconds"\n', "")
    with pytest.raises(BadInput, match=r"line 27, gold 'averages': '' is no span"):
        load(written(tmp_path, missing + SECOND))
    assert len(load(written(tmp_path, GOOD + SECOND)).gold) == 2


JOIN = '\n[[enrich]]\nname = "both"\nof = "ticks"\nwith = "{}"\non = ["symbol"]\nwithin = "1 hour"\n'


def test_events_are_joined_with_those_of_a_silver_table(tmp_path):
    assert load(written(tmp_path, GOOD + JOIN.format("ticks"))).joined("both")
    with pytest.raises(BadInput, match=r"line 39, enrich 'both': there is no silver table 'known': use ticks"):
        load(written(tmp_path, GOOD + JOIN.format("known")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("MEASURES LAST(time) AS at, COUNT(*) AS problem", r"there would be 'problem' twice"),
        ("MEASURES LAST(time) AS at, COUNT(*) AS symbol", r"there would be 'symbol' twice"),
        ("MEASURES LAST(time) AS at, COUNT(*) AS Day", r"'Day' is the column by which tables are divided"),
        ("MEASURES LAST(time) AS at", ""),
    ],
)
def test_measures_of_a_pattern_are_columns_with_names_of_their_own(tmp_path, text, said):
    pattern = f"PARTITION BY symbol ORDER BY time {text} PATTERN (A) DEFINE A AS price > 7"
    gold = (
        f'\n[[gold]]\nname = "turns"\nof = "ticks"\nkind = "pattern"\ntime = "at"\ntopic = "t"\npattern = "{pattern}"\n'
    )
    if not said:
        assert load(written(tmp_path, GOOD + gold)).gold[1].name == "turns"
        return
    with pytest.raises(BadInput, match=rf"line 42, gold 'turns': {said}"):
        load(written(tmp_path, GOOD + gold))
    by_text = GOOD + gold.replace("ORDER BY time", "ORDER BY symbol")
    with pytest.raises(BadInput, match=r"ORDER BY begins with symbol, which is string: use a time"):
        load(written(tmp_path, by_text))


def test_a_parquet_table_has_the_columns_or_it_is_said(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"symbol": ["IBM"], "sector": ["tech"]}), tmp_path / "stocks.parquet")
    text = GOOD.replace("stocks.csv", "stocks.parquet")
    assert load(written(tmp_path, text)).enrich[0].columns
    with pytest.raises(BadInput, match=r"line 23, enrich 'known': .*stocks.parquet has no column 'sektor': it has sym"):
        load(written(tmp_path, text.replace("sector string", "sektor string")))
    (tmp_path / "stocks.parquet").write_bytes(b"what?")
    with pytest.raises(BadInput, match=r"line 23, enrich 'known': the table .*stocks.parquet cannot be read"):
        load(written(tmp_path, text))


def test_two_queries_of_one_name_are_refused(tmp_path):
    """The golds of one of them would never run."""
    silver = "".join(
        f'[[silver]]\nname = "{name}"\ntopics = "{name}"\nfields = "x double"\n' for name in ("a", "b", "a-b")
    )
    gold = '[[gold]]\nname = "{}"\nof = {}\nkind = "where"\nwhere = "x > 1"\ntopic = "t/{}"\n'
    golds = gold.format("one", '["a", "b"]', "one") + gold.format("two", '"a-b"', "two")
    with pytest.raises(BadInput, match="two queries would be called 'gold-windows-a-b': rename a silver table"):
        load(written(tmp_path, GOOD.partition("[[silver]]")[0] + silver + golds))


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
