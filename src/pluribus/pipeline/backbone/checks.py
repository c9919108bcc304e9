"""Checks of a configuration that the types of its parts cannot express. What Spark would refuse later, or do otherwise
than it is written, is told before Spark starts, with its place in the file.

A table has *columns*: names with Spark's names of their types. Those of a silver table come from its fields, those of a
join from both sides, those of a gold are its answers. Every name that is used is looked for among them. Spark does not
tell ``Price`` from ``price``, so no table has both.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import BadInput
from ...core.url import parse_url
from ...patterns import parse as parse_pattern
from ...pubsub.topics import checked_topic, levels_of, overlap
from ..columns import RESERVED, named_fields
from ..files import local_path
from .groups import groups
from .parts import (
    AGGREGATE,
    AGGREGATES,
    BODY,
    PLACEHOLDER,
    TAKEN,
    WINDOWED,
    Configuration,
    Enrich,
    Gold,
    Silver,
    condition,
    fields_of,
    kinds_of,
    pattern_of,
    seconds,
    time_of,
)
from .places import Keys, TomlPlaces

LATE_S_MAX = 7 * 86_400.0
RULES_MAX = 256
TABLES_MAX = 256
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
DAY = "day"
"""The column by which tables are divided."""
ASKED = {
    "windows": ("width", "every", "by", "values"),
    "top": ("width", "every", "by", "values", "k", "score"),
    "anomalies": ("width", "by", "value"),
    "last": ("by",),
    "pattern": ("pattern",),
    "where": (),
}
"""The keys that a kind of gold knows, beside those that all know."""
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
TIMES = ("timestamp", "timestamp_ntz", "date")
INNER = {"windows": ("window",), "top": ("window", "rank"), "anomalies": ("window", "least", "most")}
"""Columns that they have on the way to their answers."""
Columns = Mapping[str, str]


def is_number(kind: str) -> bool:
    return kind.partition("(")[0] in NUMBERS


def family(kind: str) -> str:
    """Types of one family are compared without a change that may fail."""
    return "a number" if is_number(kind) else "a time" if kind in TIMES else kind


class Checks:
    """``all`` raises ``BadInput`` for the first mistake."""

    def __init__(self, found: Configuration, where: TomlPlaces) -> None:
        self._found = found
        self._where = where
        self._columns: dict[str, dict[str, str]] = {}
        """Of silver tables and enriched ones, by name."""

    def all(self) -> None:
        found = self._found
        self._whole()
        self._names("silver", found.silver)
        self._names("enrich", [*found.silver, *found.enrich], len(found.silver))
        self._names("gold", found.gold)
        for number, silver in enumerate(found.silver):
            self._silver(number, silver)
        for number, step in enumerate(found.enrich):
            self._enrich(number, step)
        for number, gold in enumerate(found.gold):
            self._gold(number, gold)
        self._no_loops()
        self._queries()

    def _whole(self) -> None:
        found = self._found
        if NAME.fullmatch(found.name) is None:
            self._refuse(["name"], "", f"the name {found.name!r} is none: use letters, digits, - and _")
        if not found.url:
            self._refuse(["name"], "", "no url is given: write url = 'client://HOST:PORT/BUS', or set $PLURIBUS_URL")
        if len(re.split(r"[;\s]+", found.url.strip())) > 1:
            self._refuse(["url"], "", "a backbone reads and writes one log: name one bus, client://HOST:PORT,…/BUS")
        self._sure(["url"], "", lambda: parse_url(found.url))
        if not found.silver:
            self._refuse(["name"], "", "there is no [[silver]] table: write at least one")
        if found.rows < 1:
            self._refuse(["rows"], "", f"rows = {found.rows} lets no event in: use 1 or more")
        if found.every:
            self._sure(["every"], "", lambda: seconds(found.every))
        self._sure(["tiers", "every"], "tiers", lambda: seconds(found.tiers.every))
        if found.tiers.retain:
            self._sure(["tiers", "retain"], "tiers", lambda: seconds(found.tiers.retain))
        if found.tiers.compact_files < 2:
            self._refuse(["tiers", "compact_files"], "tiers", "compact_files must be 2 or more")
        if found.tiers.compact_bytes < 1:
            self._refuse(["tiers", "compact_bytes"], "tiers", "compact_bytes must be 1 or more")

    # Words.

    def _refuse(self, keys: Keys, told: str, said: str) -> None:
        raise self._where.error(keys, said, told)

    def _sure(self, keys: Keys, told: str, check: Any) -> Any:
        try:
            return check()
        except BadInput as error:
            raise self._where.error(keys, str(error), told) from None

    def _span(self, keys: Keys, told: str, span: str) -> float:
        """Seconds of a span that is more than nothing."""
        found: float = self._sure(keys, told, lambda: seconds(span))
        if not found:
            self._refuse(keys, told, f"{span!r} is no time at all: use more than 0")
        return found

    def _names(self, what: str, some: Sequence[Any], skip: int = 0) -> None:
        seen: set[str] = set()
        for number, one in enumerate(some):
            keys: list[str | int] = [what, number - skip, "name"]
            if NAME.fullmatch(one.name) is None:
                self._refuse(keys, what, f"the name {one.name!r} is none: use letters, digits, - and _")
            if one.name in seen:
                self._refuse(keys, what, f"the name {one.name!r} is taken: choose another")
            seen.add(one.name)
        if len(some) > TABLES_MAX:
            self._refuse([what, 0], what, f"there are {len(some)}: {TABLES_MAX} is the limit")

    def _column(self, keys: Keys, told: str, kinds: Columns, name: str) -> None:
        if name not in kinds:
            self._refuse(keys, told, f"there is no column {name!r}: use one of {', '.join(kinds)}")

    def _key(self, keys: Keys, told: str, kinds: Columns, name: str) -> None:
        """A column by which events are compared."""
        self._column(keys, told, kinds, name)
        if "map<" in kinds[name]:
            self._refuse(keys, told, f"{name!r} is {kinds[name]}, and maps are not compared: use another column")

    def _number(self, keys: Keys, told: str, kinds: Columns, name: str) -> None:
        self._column(keys, told, kinds, name)
        if not is_number(kinds[name]):
            self._refuse(keys, told, f"{name!r} is {kinds[name]}, and no number: use another column")

    def _distinct(self, keys: Keys, told: str, names: Iterable[str]) -> None:
        """No two columns of a table have one name, and none that of its partitions."""
        seen: dict[str, str] = {}
        for name in names:
            if name.lower() == DAY:
                self._refuse(keys, told, f"{name!r} is the column by which tables are divided: choose another name")
            if name.lower() in seen:
                other = seen[name.lower()]
                said = f"{name!r} twice" if other == name else f"{other!r} and {name!r}, which Spark takes for the same"
                self._refuse(keys, told, f"there would be {said}: choose another name")
            seen[name.lower()] = name

    def _condition(self, keys: Keys, told: str, text: str, kinds: Columns) -> None:
        self._sure(keys, told, lambda: condition(text, kinds))

    # Silver.

    def _silver(self, number: int, silver: Silver) -> None:
        at: list[str | int] = ["silver", number]
        told = f"silver {silver.name!r}"
        self._sure([*at, "topics"], told, lambda: levels_of(silver.topics))
        if "," in silver.topics:
            self._refuse([*at, "topics"], told, f"topics = {silver.topics!r} has a comma: write a [[silver]] for each")
        if bool(silver.fields) == bool(silver.type):
            self._refuse(at, told, "write fields = 'price double, …' or type = 'module:Class', one of both")
        named = [*at, "fields" if silver.fields else "type"]
        kinds = self._sure(named, told, lambda: kinds_of(silver))
        late_s = self._sure([*at, "late"], told, lambda: silver.late_s)
        if late_s > LATE_S_MAX:
            self._refuse([*at, "late"], told, f"late = {silver.late!r} is more than {LATE_S_MAX / 86_400:g} days")
        for name, level in silver.levels.items():
            if not name.isidentifier() or name.lower() in RESERVED:
                self._refuse([*at, "levels"], told, f"the level {name!r} cannot be a column: choose another name")
            if level < 1:
                self._refuse([*at, "levels"], told, f"{name} = {level}: levels of a topic are counted from 1")
        fields = list(fields_of(silver).names)
        taken = [name for name in fields if name.lower() in RESERVED]
        if taken:
            self._refuse(named, told, f"the field {taken[0]!r} is a name of the envelope: rename it")
        self._distinct(named, told, fields)
        self._distinct([*at, "levels"], told, [*fields, *silver.levels])
        for key in silver.unique:
            if key != "id":
                self._key([*at, "unique"], told, kinds, key)
        self._rules(at, told, silver, kinds)
        self._columns[silver.name] = kinds

    def _rules(self, at: Keys, told: str, silver: Silver, kinds: Columns) -> None:
        if len(silver.rules) > RULES_MAX:
            self._refuse([*at, "rules", 0], told, f"there are {len(silver.rules)} rules: {RULES_MAX} is the limit")
        seen = {BODY}
        for place, rule in enumerate(silver.rules):
            keys, of = [*at, "rules", place], f"{told}, rule {rule.name!r}"
            if not rule.name or rule.name in seen:
                self._refuse([*keys, "name"], of, "the name of a rule is taken or empty: choose another")
            seen.add(rule.name)
            self._condition([*keys, "where"], of, rule.where, kinds)

    def _of(self, keys: Keys, told: str, of: str | list[str]) -> dict[str, str]:
        names = [of] if isinstance(of, str) else of
        if not names:
            self._refuse([*keys, "of"], told, "of = [] is made of nothing: name a silver table")
        kinds: dict[str, str] = {}
        for name, times in Counter(names).items():
            if times > 1:
                self._refuse([*keys, "of"], told, f"{name!r} is named twice, and each event would count twice")
            if name not in self._columns:
                there = ", ".join(self._columns)
                self._refuse([*keys, "of"], told, f"there is no table {name!r} before this one: use {there}")
            for column, kind in self._columns[name].items():
                if kinds.setdefault(column, kind) != kind:
                    self._refuse([*keys, "of"], told, f"{column!r} is {kind} in {name!r} and {kinds[column]} elsewhere")
        self._distinct([*keys, "of"], told, kinds)
        return kinds

    # Enrichment.

    def _enrich(self, number: int, step: Enrich) -> None:
        keys: list[str | int] = ["enrich", number]
        told = f"enrich {step.name!r}"
        kinds = dict(self._of(keys, told, step.of))
        if bool(step.table) == bool(step.other):
            self._refuse(keys, told, "write table = PATH, or with = 'another silver table', one of both")
        if not step.on:
            self._refuse([*keys, "on"], told, "on = [] joins everything with everything: name the keys")
        for key in step.on:
            self._key([*keys, "on"], told, kinds, key)
        self._unused(
            keys, told, step, ("columns", "since") if step.other else ("within",), "an enrichment of this kind"
        )
        more = self._with(keys, told, step, kinds) if step.other else self._beside(keys, told, step, kinds)
        self._distinct(keys, told, [*kinds, *(name for name in more if name not in step.on)])
        self._columns[step.name] = {**kinds, **more}

    def _with(self, keys: Keys, told: str, step: Enrich, kinds: Columns) -> dict[str, str]:
        """The columns that another silver table adds."""
        self._span([*keys, "within"], told, step.within)
        if step.other not in [one.name for one in self._found.silver]:
            there = ", ".join(one.name for one in self._found.silver)
            self._refuse([*keys, "with"], told, f"there is no silver table {step.other!r}: use {there}")
        beside = self._columns[step.other]
        self._comparable(keys, f"{told}, with {step.other!r}", step, kinds, beside)
        more = {f"right_{name}" if name in kinds else name: kind for name, kind in beside.items()}
        return {name: kind for name, kind in more.items() if name.removeprefix("right_") not in step.on}

    def _beside(self, keys: Keys, told: str, step: Enrich, kinds: Columns) -> dict[str, str]:
        """The columns that a slowly changing table adds."""
        columns = self._sure([*keys, "columns"], told, lambda: named_fields(step.columns or "none"))
        more = {field.name: field.dataType.simpleString() for field in columns.fields}
        self._distinct([*keys, "columns"], told, columns.names)
        self._comparable(keys, f"{told}, columns", step, kinds, more)
        if step.since and more.get(step.since) != "timestamp":
            self._refuse([*keys, "since"], told, f"since = {step.since!r} is no timestamp among the columns")
        clash = [name for name in more if name not in step.on and (name in kinds or name.lower() in RESERVED)]
        if clash:
            self._refuse([*keys, "columns"], told, f"{clash[0]!r} is a column of {step.of!r} already: rename it")
        self._table([*keys, "table"], told, step.table, list(more))
        return more

    def _comparable(self, keys: Keys, told: str, step: Enrich, kinds: Columns, beside: Columns) -> None:
        for key in step.on:
            self._key([*keys, "on"], told, beside, key)
            if family(kinds[key]) != family(beside[key]):
                self._refuse([*keys, "on"], told, f"{key!r} is {beside[key]} there, and {kinds[key]} of the events")

    def _table(self, keys: Keys, told: str, where: str, columns: Sequence[str]) -> None:
        """Of a table on a disk of this machine: it is there, and has the columns."""
        path = local_path(where)
        if path is None:
            return
        if not path.exists():
            self._refuse(keys, told, f"there is no table {path}: write where it is, below the folder of this file")
        there = self._header(keys, told, path)
        missing = [name for name in columns if there is not None and name not in there]
        if missing and there is not None:
            said = f"{path} has no column {missing[0]!r}: it has {', '.join(there) or 'nothing'}"
            self._refuse(keys, told, f"{said}; name columns as the table does")

    def _header(self, keys: Keys, told: str, path: Path) -> list[str] | None:
        """The columns that a table has; None if only its rows tell."""
        if path.suffix == ".csv" and path.is_file():
            try:
                with path.open(newline="", encoding="utf-8-sig") as lines:
                    return next(csv.reader(lines), [])
            except (OSError, UnicodeDecodeError, csv.Error) as error:
                self._refuse(keys, told, f"the table {path} cannot be read ({error}): write it as CSV with a header")
        if path.suffix in (".csv", ".json", ".jsonl"):
            return None
        return self._sure(keys, told, lambda: columns_of_parquet(path))  # type: ignore[no-any-return]

    # Gold.

    def _gold(self, number: int, gold: Gold) -> None:
        keys: list[str | int] = ["gold", number]
        told = f"gold {gold.name!r}"
        kinds = self._of(keys, told, gold.of)
        unknown = {name for names in ASKED.values() for name in names} - {*ASKED[gold.kind]}
        self._unused(keys, told, gold, sorted(unknown), f"kind = {gold.kind!r}")
        answers = self._answers(keys, told, gold, kinds)
        if gold.where:
            self._condition([*keys, "where"], told, gold.where, answers)
        elif gold.kind == "where":
            self._refuse(keys, told, "kind = 'where' has no condition: write where = 'price > 100'")
        self._sure([*keys, "topic"], told, lambda: checked_topic(PLACEHOLDER.sub("x", gold.topic)))
        if "," in gold.topic:
            self._refuse([*keys, "topic"], told, f"topic = {gold.topic!r} has a comma: leave it out")
        for name in PLACEHOLDER.findall(gold.topic):
            self._column([*keys, "topic"], told, answers, name)
        at = gold.time or time_of(gold)
        if answers.get(at) != "timestamp":
            self._refuse(
                [*keys, "time"], told, f"time = {at!r} is no time among its columns ({', '.join(answers)}): name one"
            )

    def _unused(self, keys: Keys, told: str, part: Any, names: Iterable[str], of: str) -> None:
        """Refuse keys that would have no effect."""
        for name in names:
            if getattr(part, name):
                self._refuse([*keys, name], told, f"{of} makes nothing of {name}: leave it out")

    def _answers(self, keys: Keys, told: str, gold: Gold, kinds: Columns) -> dict[str, str]:
        """The columns that the answers have."""
        for name in gold.by:
            self._key([*keys, "by"], told, kinds, name)
        by = {name: kinds[name] for name in gold.by}
        window = {"start": "timestamp", "end": "timestamp"}
        if gold.kind in WINDOWED:
            width_s = self._span([*keys, "width"], told, gold.width)
            self._distinct([*keys, "by"], told, [*window, *INNER[gold.kind], *gold.by])
            if gold.every and self._span([*keys, "every"], told, gold.every) > width_s:
                said = f"every = {gold.every!r} is longer than width = {gold.width!r}: events between windows would"
                self._refuse([*keys, "every"], told, f"{said} not count; let it be as long at most")
        match gold.kind:
            case "windows" | "top":
                values = self._values(keys, told, gold, kinds)
                self._distinct([*keys, "values"], told, [*window, *INNER[gold.kind], *by, *values])
                found = {**window, **by, **values}
                if gold.kind == "top":
                    if gold.k < 1:
                        self._refuse([*keys, "k"], told, f"the best {gold.k} are none: ask for 1 or more")
                    self._column([*keys, "score"], told, found, gold.score)
                    found["rank"] = "int"
                return found
            case "anomalies":
                self._number([*keys, "value"], told, kinds, gold.value)
                scores = dict.fromkeys(("mean", "deviation", "strangest", "score"), "double")
                found = {"count": "bigint", **scores, "strangest": kinds[gold.value]}
                self._distinct([*keys, "by"], told, [*window, *INNER[gold.kind], *by, *found])
                return {**window, **by, **found}
            case "last":
                if not gold.by:
                    self._refuse(keys, told, "kind = 'last' has no keys: write by = ['symbol']")
            case "pattern":
                if self._found.joined(gold.of):
                    said = "a pattern on joined streams has two clocks: let it be of silver tables, or of their list"
                    self._refuse([*keys, "of"], told, said)
                return self._pattern(keys, told, gold, kinds)
        return dict(kinds)

    def _pattern(self, keys: Keys, told: str, gold: Gold, kinds: Columns) -> dict[str, str]:
        from ..pattern_columns import column_of, measure_type
        from ..patterns import PROBLEM

        at = [*keys, "pattern"]
        pattern = self._sure(at, told, lambda: parse_pattern(gold.pattern))
        clauses = pattern.clauses
        if clauses.all_rows:
            self._refuse(at, told, "ALL ROWS PER MATCH gives no single answer: use ONE ROW PER MATCH")
        schema = _schema(kinds)

        def checked() -> list[tuple[str, str]]:
            for path in (*clauses.order, *clauses.partition, *pattern.columns):
                column_of(schema, path)
            keyed = [(".".join(path), column_of(schema, path).kind) for path in clauses.partition]
            return [*keyed, *((one.name, measure_type(one.value, schema, pattern)) for one in clauses.measures)]

        found = self._sure(at, told, checked)
        first = column_of(schema, clauses.order[0]).kind
        if family(first) not in ("a time", "a number"):
            self._refuse(at, told, f"ORDER BY begins with {'.'.join(clauses.order[0])}, which is {first}: use a time")
        self._distinct(at, told, [*(name for name, _ in found), PROBLEM])
        return dict(found)

    def _values(self, keys: Keys, told: str, gold: Gold, kinds: Columns) -> dict[str, str]:
        if not gold.values:
            self._refuse(keys, told, "there is nothing to compute: write [gold.values] with mean = 'avg(price)'")
        found: dict[str, str] = {}
        for name, text in gold.values.items():
            if not name.isidentifier() or name in TAKEN:
                self._refuse([*keys, "values"], told, f"{name!r} cannot be the name of a value: choose another")
            match = AGGREGATE.fullmatch(text)
            if match is None or match[1] not in AGGREGATES or (match[2] == "*" and match[1] != "count"):
                said = f"{name} = {text!r} is no aggregate: write one of {', '.join(AGGREGATES)} of a column"
                self._refuse([*keys, "values"], told, said)
                continue
            if match[1] == "count":
                if match[2] != "*":
                    self._column([*keys, "values"], told, kinds, match[2])
                found[name] = "bigint"
            elif match[1] in ("avg", "stddev", "sum"):
                self._number([*keys, "values"], told, kinds, match[2])
                whole = match[1] == "sum" and "int" in kinds[match[2]]
                found[name] = "bigint" if whole else "double"
            else:
                check = self._key if match[1] in ("min", "max") else self._column
                check([*keys, "values"], told, kinds, match[2])
                found[name] = kinds[match[2]]
        return found

    # All together.

    def _no_loops(self) -> None:
        """Check that no topic is in two tables, and that the backbone reads no topic that it writes."""
        found = self._found
        own = [f"{found.prefix(what)}#" for what in ("silver", "dead", "problems")]
        for number, silver in enumerate(found.silver):
            keys: list[str | int] = ["silver", number, "topics"]
            for other in found.silver[:number]:
                if overlap(silver.topics, other.topics):
                    said = (
                        f"topics {silver.topics!r} are partly those of silver {other.name!r}: an event is in one table"
                    )
                    self._refuse(keys, f"silver {silver.name!r}", said)
            for answers in [*own, *(pattern_of(gold.topic) for gold in found.gold)]:
                if overlap(silver.topics, answers):
                    said = (
                        f"topics {silver.topics!r} would read what is written to {answers!r}: choose others, or give "
                        "the backbone another name"
                    )
                    self._refuse(keys, f"silver {silver.name!r}", said)
        for number, gold in enumerate(found.gold):
            for pattern in [*own, *(pattern_of(other.topic) for other in found.gold[:number])]:
                ours = pattern_of(gold.topic)
                if ours != pattern and overlap(ours, pattern):
                    said = f"topic {gold.topic!r} is partly {pattern!r}: let them be the same, or apart"
                    self._refuse(["gold", number, "topic"], f"gold {gold.name!r}", said)

    def _queries(self) -> None:
        """Names of queries are made of those of their tables: 'a-b' is one table, or two."""
        for name, times in Counter(group.name for group in groups(self._found)).items():
            if times > 1:
                self._refuse(["silver", 0], "", f"two queries would be called {name!r}: rename a silver table")


def columns_of_parquet(path: Path) -> list[str]:
    import pyarrow as pa
    from pyarrow import dataset

    try:
        return list(dataset.dataset(path, format="parquet", partitioning="hive").schema.names)
    except (OSError, pa.ArrowInvalid) as error:
        said = " ".join(str(error).split())[:200]
        raise BadInput(f"the table {path} cannot be read ({said}): write CSV, lines of JSON, or Parquet") from None


def _schema(kinds: Columns) -> Any:
    """Columns of these types, as Spark has them; what a pattern cannot read anyway is left out."""
    from pyspark.sql import types as T

    plain = {
        "string": T.StringType(),
        "int": T.IntegerType(),
        "bigint": T.LongType(),
        "float": T.FloatType(),
        "double": T.DoubleType(),
        "boolean": T.BooleanType(),
        "timestamp": T.TimestampType(),
        "date": T.DateType(),
    }
    return T.StructType([T.StructField(name, plain[kind]) for name, kind in kinds.items() if kind in plain])
