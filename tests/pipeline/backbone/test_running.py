"""Backbones, whole: the two examples run, the report adds up, answers come once, tables hold what they should."""

import json
from datetime import UTC, datetime, timedelta

import pytest

import pluribus
from pluribus.cli.app import run
from pluribus.core.errors import BadInput, JobFailed, Refused
from tests.pipeline.backbone.rooms import NOON_S, averages, example, put, ticks
from tests.pipeline.test_source import url_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def bodies(bus, pattern):
    return [event.body for known in bus.durable.topics(pattern) for event in bus.log(known.topic).read().events()]


def told(bus):
    """The averages that were published, as the oracle has them."""
    return [
        ((body["start"].timestamp(), body["symbol"], body["sector"]), (body["ticks"], round(body["mean"], 9)))
        for body in bodies(bus, "answers/averages/#")
    ]


def once(path, url, capsys):
    capsys.readouterr()
    assert run(["pipeline", "backbone", str(path), "--url", url, "--once", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def counts(found):
    return {name: found[name] for name in ("read", "good", "dead", "dropped", "late", "duplicate", "lost", "adds_up")}


def test_the_dealing_room_from_raw_prices_to_answers_and_back(spark, tmp_path, capsys):
    from pluribus.pipeline.backbone.backfill import backfill
    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.backbone.tiers import Tiers

    path = example(tmp_path, "dealing")
    with pluribus.sync.connect("inproc://backbone-dealing", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        url = url_of(bus)
        first = ticks(range(40))
        for number, (symbol, events) in enumerate(first.items(), 1):
            put(url, f"stocks/ny/{symbol}", number, 1, events)
        put(
            url,
            "stocks/ny/calm",
            1,
            41,
            [(1, {"symbol": "TEST1", "price": 1.0}), (2, {"symbol": "calm", "price": -1.0})],
        )
        put(url, "stocks/ny/calm", 1, 43, [(3, "what?")])
        put(url, "stocks/ny/calm", 9, 1, first["calm"][:5], ids=[(1, 1 + at) for at in range(5)])  # copies
        found = once(path, url, capsys)
        assert counts(found) == {
            "read": 88, "good": 80, "dead": 2, "dropped": 1, "late": 0, "duplicate": 5, "lost": 0, "adds_up": True
        }  # fmt: skip
        assert found["rules"] == {"ticks/a price": 1, "ticks/body": 1, "ticks/no rehearsal": 1}
        (poison, cheap) = sorted(
            (dict(event.headers) for event in bus.log("dealing/dead/stocks/ny/calm").read().events()),
            key=lambda headers: -int(headers["offset"]),
        )
        assert (cheap["rule"], cheap["table"], cheap["offset"]) == ("a price", "ticks", "41")
        assert cheap["reason"] == "price > 0 AND price < 1000000 is not true of price = -1.0"
        assert poison["rule"] == "body" and "has no fields" in poison["reason"]
        assert len(bodies(bus, "answers/high")) == sum(
            body["price"] >= 110 for some in first.values() for _, body in some
        )
        assert {body["symbol"]: body["price"] for body in bodies(bus, "answers/latest/#")} == {
            symbol: events[-1][1]["price"] for symbol, events in first.items()
        }
        # Later: two that come too late.
        late = [(12, {"symbol": "calm", "price": 500.0}), (13, {"symbol": "wild", "price": 500.0})]
        put(url, "stocks/ny/late", 3, 1, late)
        # What was dead is sent round again, under a rule that lets it through; once, however often it is asked.
        # Its time is today's, which closes all windows.
        path.write_text(path.read_text().replace("price > 0 AND", "price > -5 AND"))
        for resent in (2, 0):
            assert run(["pipeline", "resend", str(path), "--url", url, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["resent"] == resent
        found = once(path, url, capsys)
        assert counts(found) == {
            "read": 4, "good": 1, "dead": 1, "dropped": 0, "late": 2, "duplicate": 0, "lost": 0, "adds_up": True
        }  # fmt: skip
        assert counts(found["total"])["read"] == 92 and found["total"]["adds_up"]
        (back,) = bus.log("dealing/silver/stocks/ny/calm").read(start=40).events()
        assert back.body["price"] == -1.0 and back.headers["resent"] == "1"
        on_time = [event for some in first.values() for event in some]
        assert len(told(bus)) == len(dict(told(bus))), "each answer once"
        oracle = averages(on_time)
        assert dict(told(bus)) == oracle
        turns = bodies(bus, "alerts/ny")
        assert turns and all(body["bottom"] < body["top"] and body["now"] > body["bottom"] for body in turns)
        best = bodies(bus, "answers/busiest")
        assert {body["rank"] for body in best} == {1, 2}

        # Tables: everything in bronze, the good ones in silver, the answers in gold.
        configuration = load(path, url)
        tiers = Tiers(spark, configuration)

        def rows(table):
            files = [table.files.under(name) for name in table.snapshot()]
            return spark.read.option("basePath", table.files.root).parquet(*files)

        assert rows(tiers.bronze).count() == 92 and rows(tiers.silver["ticks"]).count() == 81
        assert rows(tiers.dead).count() == 3 and rows(tiers.gold["averages"]).count() == len(told(bus))
        assert "topic=stocks%2Fny%2Fcalm/day=2026-09-15/" in tiers.bronze.snapshot()[0]

        # A range again, from bronze, with those that came late; what is beside it stays as it was.
        start, stop = (datetime.fromtimestamp(NOON_S + second, UTC) for second in (0, 20))
        with pytest.raises(BadInput, match=r"may still come in time: go up to \d{4}-"):
            backfill(spark, configuration, start, datetime.now(UTC) + timedelta(hours=1))
        filled = backfill(spark, configuration, start, stop)
        assert filled["adds_up"] and filled["good"] == 43 and filled["duplicate"] == 5
        again = averages([*on_time, *late, (2, {"symbol": "calm", "price": -1.0})])  # by the rules of today
        wanted = {key: again[key] if 0 <= key[0] - NOON_S < 20 else value for key, value in averages(on_time).items()}
        table = rows(tiers.gold["averages"]).collect()
        assert len(table) == len(wanted)
        assert {
            (row["start"].timestamp(), row["symbol"], row["sector"]): (
                row["ticks"],
                round(row["mean"], 9),
            )
            for row in table
        } == wanted
        assert rows(tiers.silver["ticks"]).count() == 84

        # The report, without Spark.
        assert run(["pipeline", "report", str(path), "--url", url, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["read"] == 92 and report["adds_up"] and report["behind"] == 0
        assert len({row["run"] for row in report["days"]}) == 2 and all(row["adds_up"] for row in report["days"])
        # What its queries did, as a page and as text for Prometheus.
        assert run(["pipeline", "status", str(path.parent / "dealing.state"), "--prometheus"]) == 0
        shown = capsys.readouterr().out
        assert 'pluribus_pipeline_lag_events{query="intake"} 0' in shown
        assert 'pluribus_pipeline_rows_total{query="intake"} 4' in shown
        assert run(["pipeline", "status", str(path.parent / "dealing.state")]) == 0
        assert "tiers" in capsys.readouterr().out
        # What was filled has not landed again.
        assert [body["symbol"] for body in bodies(bus, "answers/strange/#")] == ["wild"]
        in_table = rows(tiers.gold["averages"]).where(f"unix_seconds(start) < {NOON_S + 60}")
        assert in_table.count() == len(oracle)


TOWNS = ("Kirkby", "Appleby", "Langwathby", "York")


def test_the_river_from_gauges_to_floods(spark, tmp_path, capsys):
    """As in the example without a backbone: the Eden rises in three places near Penrith while a model warns."""
    path = example(tmp_path, "river")
    events = [
        ("Eden", 0, {"town": "Kirkby", "level": 1.3}),
        ("Tees", 0.5, {"town": "Kirkby", "level": 1.6}),
        ("Eden", 1, {"town": "York", "level": 3.0}),
        ("Tees", 1.7, {"model": "flood", "risk": 0.9}),
        ("Eden", 2, {"town": "Appleby", "level": 1.1}),
        ("Eden", 2.5, {"town": "Appleby", "level": -4.0}),
        ("Eden", 3, {"town": "Appleby", "level": 1.25}),
        ("Eden", 3, {"town": "Appleby", "level": 1.25}),
        ("Eden", 4, {"town": "Langwathby", "level": 1.5}),
        ("Eden", 4.1, {"model": "guess", "risk": 0.7}),
        ("Eden", 4.2, {"model": "flood", "risk": 0.8}),
        ("Tees", 20, {"town": "Appleby", "level": 1.0}),
        ("Tees", 20, {"model": "ice", "risk": 0.1}),
    ]
    with pluribus.sync.connect("inproc://backbone-rivers", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        url = url_of(bus)
        for number, (river, hour, body) in enumerate(events, 1):
            what = "levels" if "town" in body else "warnings"
            put(url, f"rivers/{river}/{what}", 7, number, [(hour * 3_600, {"river": river, **body})])
        found = once(path, url, capsys)
        assert counts(found) == {
            "read": 13, "good": 10, "dead": 1, "dropped": 1, "late": 0, "duplicate": 1, "lost": 0, "adds_up": True
        }  # fmt: skip
        (flood,) = bodies(bus, "floods/#")
        assert {name: flood[name] for name in ("one", "two", "three", "risk")} == {
            "one": "Kirkby", "two": "Appleby", "three": "Langwathby", "risk": 0.8
        }  # fmt: skip
        dangers = bodies(bus, "dangers/#")
        assert [(body["river"], body["town"], body["risk"]) for body in dangers] == [("Tees", "Kirkby", 0.9)]
        hourly = {(body["river"], body["town"], body["highest"]) for body in bodies(bus, "hourly/#")}
        assert ("Eden", "York", 3.0) in hourly and len(hourly) == 6


def test_golds_miss_nothing_however_far_they_are_behind(spark, tmp_path, capsys):
    """Within a micro-batch of the intake, times fall. Golds read all of it: a part would make them take the rest for
    late. An answer without a topic does not end them."""
    text = """
        name = "steps"
        state = "state"
        tables = "tables"
        rows = 100
        [[silver]]
        name = "numbers"
        topics = "numbers"
        fields = "n bigint, name string"
        late = "50 seconds"
        [[silver.rules]]
        name = "not the first"
        where = "n >= 30"
        otherwise = "drop"
        [[gold]]
        name = "counts"
        of = "numbers"
        kind = "windows"
        width = "10 seconds"
        topic = "counts"
        values = { count = "count(*)" }
        [[gold]]
        name = "named"
        of = "numbers"
        kind = "where"
        where = "n IN (100, 200, 300)"
        topic = "named/{name}"
    """
    path = tmp_path / "steps.toml"
    path.write_text(text)
    names = {100: None, 200: "a//b", 300: "fine"}
    events = [(n // 100 * 100 + 100 - n % 100, {"n": n, "name": names.get(n, "x")}) for n in range(500)]
    with pluribus.sync.connect("inproc://backbone-steps-of", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        url = url_of(bus)
        put(url, "numbers", 1, 1, [*events, (5_000, {"n": 1_000, "name": "x"})])
        found = once(path, url, capsys)
        assert (found["good"], found["dropped"], found["late"]) == (471, 30, 0)
        assert sum(body["count"] for body in bodies(bus, "counts")) == 470
        assert [body["n"] for body in bodies(bus, "named/#")] == [300]
        problems = {body["n"]: body["problem"] for body in bodies(bus, "steps/problems/named")}
        assert problems[100] == "a value of its topic is null" and "a level is empty" in problems[200]


def test_a_rule_that_must_not_be_broken_stops_the_backbone_and_nothing_counts(spark, tmp_path, capsys):
    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.backbone.running import Backbone, held

    text = """
        name = "strict"
        state = "state"
        tables = "tables"
        [[silver]]
        name = "numbers"
        topics = "numbers"
        fields = "n bigint"
        [[silver.rules]]
        name = "never 7"
        where = "n <> 7"
        otherwise = "fail"
    """
    path = tmp_path / "strict.toml"
    path.write_text(text)
    with pluribus.sync.connect("inproc://backbone-strict", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        url = url_of(bus)
        put(url, "numbers", 1, 1, [(at, {"n": at}) for at in range(10)])
        with pytest.raises(
            JobFailed, match=r"event 7 of 'numbers' breaks the rule 'never 7' \(n <> 7\): n = 7; correct"
        ):
            Backbone(spark, load(path, url)).run(once=True)
        assert bus.durable.topics("strict/#") == []
        path.write_text(text.replace('"fail"', '"drop"'))
        with held(str(tmp_path / "state")), pytest.raises(Refused, match="another process runs the backbone"):
            Backbone(spark, load(path, url)).run(once=True)
        found = Backbone(spark, load(path, url)).run(once=True)
        assert counts(found) == {
            "read": 10, "good": 9, "dead": 0, "dropped": 1, "late": 0, "duplicate": 0, "lost": 0, "adds_up": True
        }  # fmt: skip
        # The state is lost: nobody knows what was counted, so nothing is done unless it is said.
        path.write_text(path.read_text().replace('"state"', '"other"'))
        with pytest.raises(BadInput, match="other is empty, and there are events of a backbone 'strict' on this bus"):
            Backbone(spark, load(path, url)).run(once=True)
        found = Backbone(spark, load(path, url), begin=True).run(once=True)
        assert found["read"] == 10 and found["adds_up"]
        assert bus.log("strict/silver/numbers").offsets() == (0, 18), "published again"


def test_golds_come_and_go_and_the_others_go_on_with_their_own_state(spark, tmp_path):
    """Two golds of one kind share a query. One is removed, another is written in front of them: what stays sums up the
    window that was open meanwhile, and what is new answers for all events."""
    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.backbone.running import Backbone

    head = """
        name = "golds"
        state = "state"
        tables = "tables"
        [[silver]]
        name = "numbers"
        topics = "numbers"
        fields = "n bigint"
        late = "1 second"
    """
    path = tmp_path / "golds.toml"

    words = '[[silver]]\nname = "words"\ntopics = "words"\nfields = "word string"\n'

    def ran(url, more="", **golds):
        path.write_text(head + more + "".join(gold(name, value) for name, value in golds.items()))
        assert Backbone(spark, load(path, url)).run(once=True)["adds_up"]

    def gold(name, value):
        told = f'kind = "windows"\nwidth = "10 seconds"\nby = ["sender"]\ntopic = "{name}"\n'
        return f'[[gold]]\nname = "{name}"\nof = "numbers"\n{told}values = {{ value = "{value}" }}\n'

    def found(topic):
        told = [(body["start"].timestamp() - NOON_S, body["value"]) for body in bodies(bus, topic)]
        assert len(told) == len(dict(told)), "each window once"
        return dict(told)

    tens = {start: range(start, start + 10) for start in range(0, 60, 10)}
    with pluribus.sync.connect("inproc://backbone-golds", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        url = url_of(bus)
        put(url, "numbers", 1, 1, [(n, {"n": n}) for n in range(25)])
        put(url, "words", 2, 1, [(n, {"word": str(n)}) for n in range(3)])
        ran(url, least="min(n)", sums="sum(n)")
        assert found("least") == {0: 0, 10: 10} and found("sums") == {0: 45, 10: 145}
        put(url, "numbers", 1, 26, [(n, {"n": n}) for n in [*range(25, 60), 100]])
        ran(url, words, most="max(n)", sums="sum(n)")
        assert [body["word"] for body in bodies(bus, "golds/silver/words")] == ["0", "1", "2"], "a table that is added"
        assert found("least") == {0: 0, 10: 10}, "it is gone"
        assert found("sums") == {start: sum(some) for start, some in tens.items()}
        assert found("most") == {start: max(some) for start, some in tens.items()}
        assert all(body["sender"] == 0 for body in bodies(bus, "sums")), "a column of the envelope, if it is a key"
        with pytest.raises(BadInput, match="gold 'sums' computes something else"):
            ran(url, most="max(n)", sums="min(n)")
