"""Which golds share a query, and what becomes of a query that was begun when golds are added, removed or changed."""

import pytest

pytest.importorskip("pyspark.sql")

from pluribus.cli.app import run
from pluribus.core.errors import BadInput
from pluribus.pipeline import session
from pluribus.pipeline.backbone.configuration import load
from pluribus.pipeline.backbone.groups import Golds, groups
from pluribus.pipeline.files import LocalFiles

HEAD = """
name = "room"
url = "client://127.0.0.1:1/room"
state = "state"
tables = "tables"

[[silver]]
name = "ticks"
topics = "stocks/#"
fields = "symbol string, price double"

[[enrich]]
name = "known"
of = "ticks"
table = "stocks.csv"
columns = "symbol string, sector string"
on = ["symbol"]
"""


def windows(name, value="avg(price)", of="ticks", **more):
    told = "".join(f'{key} = "{text}"\n' for key, text in {"topic": name, **more}.items())
    return (
        f'[[gold]]\nname = "{name}"\nof = "{of}"\nkind = "windows"\nwidth = "10 seconds"\nby = ["symbol"]\n{told}'
        f'values = {{ value = "{value}" }}\n'
    )


def last(name, by="symbol"):
    return f'[[gold]]\nname = "{name}"\nof = "ticks"\nkind = "last"\nby = ["{by}"]\ntopic = "{name}"\n'


class Room:
    """A state, and the configurations with which it is run one after another."""

    def __init__(self, folder):
        self._folder = folder
        (folder / "stocks.csv").write_text("symbol,sector\nIBM,tech\n")
        self.files = LocalFiles(str(folder / "state"))

    def configuration(self, *golds, head=HEAD):
        path = self._folder / "room.toml"
        path.write_text(head + "".join(golds))
        return load(path)

    def told(self, *golds, head=HEAD):
        """By query: its golds, those without answers in brackets."""
        found = Golds(self.files).groups(self.configuration(*golds, head=head))
        return {
            group.name: [f"({gold.name})" if gold.name in group.silent else gold.name for gold in group.golds]
            for group in found
        }

    def run(self, *golds, head=HEAD, commits=True):
        """As ``told``, and all of its queries commit a micro-batch."""
        configuration = self.configuration(*golds, head=head)
        memory = Golds(self.files)
        found = memory.groups(configuration)
        told = self.told(*golds, head=head)
        memory.remember(configuration, found)
        for group in found if commits else ():
            self.files.write(f"checkpoint/{group.name}/commits/0", b"v1")
        return told


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def test_a_gold_that_is_added_has_a_query_of_its_own(room):
    assert room.run(windows("a")) == {"gold-windows-ticks": ["a"]}
    two = {"gold-windows-ticks": ["a"], "gold-windows-ticks-2": ["b", "c"]}
    assert room.run(windows("b"), windows("a"), windows("c")) == two, "in whatever order they are written"
    assert room.run(windows("a"), windows("b"), windows("c")) == two
    three = {**two, "gold-windows-ticks-3": ["d"], "gold-last-ticks": ["l"]}
    assert room.run(windows("d"), last("l"), windows("a"), windows("b"), windows("c")) == three


def test_a_gold_that_is_removed_stays_a_branch_without_answers(room):
    room.run(windows("a"), windows("b"), windows("c"))
    assert room.run(windows("a"), windows("c")) == {"gold-windows-ticks": ["a", "(b)", "c"]}
    with pytest.raises(BadInput, match="gold 'b' was removed before, and what it answered until then is there"):
        room.told(windows("a"), windows("b"), windows("c"))
    two = {"gold-windows-ticks": ["a", "(b)", "c"], "gold-windows-ticks-2": ["d"]}
    assert room.run(windows("a"), windows("c"), windows("d")) == two
    assert room.run(windows("d")) == {"gold-windows-ticks-2": ["d"]}, "a query without golds does not run"
    third = {"gold-windows-ticks-2": ["d"], "gold-windows-ticks-3": ["e"]}
    assert room.run(windows("e"), windows("d")) == third, "and its state is not taken for that of another"
    assert room.run(windows("d"), windows("e")) == third
    with pytest.raises(BadInput, match="gold 'a' was removed before"):
        room.told(windows("a"), windows("d"), windows("e"))


def test_topic_condition_and_time_of_a_gold_may_change_and_what_it_computes_may_not(room):
    room.run(windows("a"), windows("b"))
    changed = windows("a", where="value > 3", time="end").replace('topic = "a"', 'topic = "elsewhere/{symbol}"')
    assert room.told(changed, windows("b")) == {"gold-windows-ticks": ["a", "b"]}
    for other in (windows("a", "max(price)"), windows("a").replace("10 seconds", "20 seconds")):
        with pytest.raises(BadInput, match=r"gold 'a' computes something else .*'gold-windows-ticks'.* another name"):
            room.told(other, windows("b"))
    assert room.told(windows("renamed", "max(price)"), windows("b")) == {
        "gold-windows-ticks": ["(a)", "b"],
        "gold-windows-ticks-2": ["renamed"],
    }


def test_a_query_that_never_committed_may_become_another(room):
    room.run(windows("a"), commits=False)
    assert room.run(windows("a", "max(price)")) == {"gold-windows-ticks": ["a"]}
    with pytest.raises(BadInput, match="computes something else"):
        room.told(windows("a"))


def test_golds_of_a_state_keep_their_queries_whatever_the_configuration_says(room):
    """``queries`` counts for golds that begin: else every answer would be published again."""
    pattern = """
[[gold]]
name = "turns"
of = "ticks"
kind = "pattern"
time = "at"
topic = "turns"
pattern = "ORDER BY time MEASURES LAST(time) AS at PATTERN (A) DEFINE A AS price > 7"
"""
    many = {"gold-pattern-ticks": ["turns"], "gold-windows-ticks": ["a"]}
    assert room.run(windows("a"), pattern) == many
    few = 'queries = "few"' + HEAD
    assert room.told(windows("a"), pattern, head=few) == many
    assert room.told(windows("a"), pattern, windows("b"), head=few) == {**many, "gold-answers-ticks": ["b"]}
    assert [group.name for group in groups(room.configuration(windows("a"), pattern, head=few))] == [
        "gold-answers-ticks"
    ]


def test_what_whole_events_are_the_state_of_cannot_get_other_fields(room):
    room.run(windows("a"), last("l"))
    more = HEAD.replace("price double", "price double, size bigint")
    assert room.told(windows("a"), head=more) == {"gold-windows-ticks": ["a"]}
    with pytest.raises(BadInput, match="gold 'l' computes something else"):
        room.told(windows("a"), last("l"), head=more)


def test_what_a_removed_gold_is_made_of_must_stay(room):
    room.run(windows("a"), windows("b", of="known"))
    assert room.told(windows("a")) == {"gold-windows-ticks": ["a", "(b)"]}
    with pytest.raises(BadInput, match=r"gold 'b' is removed, and the query 'gold-windows-ticks' .*still needs.*known"):
        room.told(windows("a"), head=HEAD.partition("[[enrich]]")[0])


def test_a_memory_that_is_damaged_is_said(room):
    room.run(windows("a"))
    room.files.write("golds/gold-windows-ticks.json", b"{")
    with pytest.raises(BadInput, match="is no memory of golds"):
        room.told(windows("a"))


def test_the_command_says_so_before_spark_starts(room, tmp_path, monkeypatch, capsys):
    room.run(windows("a"))
    room.configuration(windows("a", "max(price)"))

    def opened(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "open_session", opened)
    assert run(["pipeline", "backbone", str(tmp_path / "room.toml")]) == 2
    assert "gold 'a' computes something else" in capsys.readouterr().err


def test_values_keep_their_places_in_the_state_whatever_order_they_are_written_in(room):
    """Spark compares types, and not names: the least would go on as the greatest."""
    both = windows("a").replace('value = "avg(price)"', 'low = "min(price)", high = "max(price)"')
    room.run(both)
    other = windows("a").replace('value = "avg(price)"', 'high = "max(price)", low = "min(price)"')
    (group,) = Golds(room.files).groups(room.configuration(other))
    assert list(group.golds[0].values) == ["low", "high"]


def test_spaces_in_a_list_of_fields_mean_nothing(room):
    room.run(last("l"))
    spaced = HEAD.replace("symbol string, price double", "symbol  string,   price double")
    assert room.told(last("l"), head=spaced) == {"gold-last-ticks": ["l"]}
