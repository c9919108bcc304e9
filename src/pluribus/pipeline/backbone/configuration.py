"""The configuration of a backbone: a file of TOML, read and checked whole before Spark starts.

::

    name = "dealing"                      of this backbone: a level of its topics, and its writers
    url = "client://127.0.0.1:47901/dealing"
    state = "dealing.state"               checkpoints, report; a folder or a URI that Spark's Hadoop client takes
    tables = "dealing.tables"             bronze, silver, dead and gold, as Parquet

    [[silver]]                            a table of events of one kind, from topics that no other one has
    [[silver.rules]]                      what is expected of each of them
    [[enrich]]                            a silver table (or several) with columns of another table or topic beside it
    [[gold]]                              a standing answer: windows, last, top, anomalies, pattern, where
    [tiers]                               how often tables are written, when files are compacted

Every error names the file, the line, and the remedy: ``dealing.toml line 14, silver 'ticks', rule 'a price': …``.
What can be known without Spark is checked here: topics, types of fields, conditions, columns that are computed with,
patterns, and whether the backbone would read what it writes.
"""

from __future__ import annotations

import csv
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...core.errors import BadInput
from ...core.url import parse_url
from ...filters import Filter, parse
from ...patterns import parse as parse_pattern
from ...pubsub.topics import checked_topic, levels_of, overlap
from ..columns import ENVELOPE_NAMES, RESERVED, import_type, named_fields, spark_fields
from ..files import local_path

LATE_S_MAX = 7 * 86_400.0
RULES_MAX = 256
TABLES_MAX = 256
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(millisecond|second|minute|hour|day)s?\s*")
SPAN_S = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3_600.0, "day": 86_400.0}
AGGREGATE = re.compile(r"\s*([a-z_]+)\s*\(\s*([A-Za-z_]\w*|\*)\s*\)\s*")
AGGREGATES = ("avg", "count", "max", "min", "stddev", "sum", "first", "last")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
BODY = "body"
"""The rule for every event: its body has the fields of its table."""
TAKEN = ("start", "end", "rank", "events", "width", "every", "by", "late", "time")
"""Names that no computed value may have."""
WINDOWED = ("windows", "anomalies", "top")

Kind = Literal["windows", "last", "top", "anomalies", "pattern", "where"]
_PYTHON: dict[str, Any] = {
    "boolean": bool,
    "bigint": int,
    "long": int,
    "double": float,
    "string": str,
    "binary": bytes,
    "timestamp": datetime,
    "date": date,
}


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """A condition that every event should fulfil: ``where``. If it is false or unknown, ``otherwise`` is done."""

    name: str
    where: str
    otherwise: Literal["drop", "aside", "fail"] = "aside"


class Silver(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    topics: str
    fields: str = ""
    type: str = ""
    late: str = "10 seconds"
    unique: list[str] = []
    levels: dict[str, int] = {}
    """Columns that are levels of the topic, counted from 1."""
    rules: list[Rule] = []

    @property
    def late_s(self) -> float:
        return seconds(self.late)


class Enrich(msgspec.Struct, forbid_unknown_fields=True):
    """``of`` with columns of a ``table`` beside it (the row of that time, if ``since`` names a column), or of events
    of another silver table ``with`` the same keys, at most ``within`` apart."""

    name: str
    of: str | list[str]
    on: list[str]
    table: str = ""
    columns: str = ""
    since: str = ""
    other: str = msgspec.field(default="", name="with")
    within: str = ""


class Gold(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    of: str | list[str]
    kind: Kind
    topic: str
    """Of the answers; ``{column}`` stands for a value."""
    where: str = ""
    width: str = ""
    every: str = ""
    by: list[str] = []
    values: dict[str, str] = {}
    value: str = ""
    k: int = 0
    score: str = ""
    pattern: str = ""
    time: str = ""
    """The column that is the time of an answer; windows have ``start``, and events ``time``, by themselves."""


class Tiers(msgspec.Struct, forbid_unknown_fields=True):
    every: str = "10 seconds"
    compact_files: int = 8
    compact_bytes: int = 64 << 20
    retain: str = ""
    """Time for which topics keep events, and in any case until they are in bronze; empty: leave retention as it is."""


class Configuration(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    state: str
    tables: str
    url: str = ""
    silver: list[Silver] = []
    enrich: list[Enrich] = []
    gold: list[Gold] = []
    tiers: Tiers = msgspec.field(default_factory=Tiers)
    rows: int = 200_000
    """Events that one micro-batch takes at most."""
    gaps: Literal["fail", "skip"] = "fail"
    """What to do when events were removed before they were read; with ``skip`` they are counted as lost."""
    every: str = ""
    """How often a micro-batch of the intake or of golds begins at most; empty: when the one before has ended."""
    queries: Literal["many", "few"] = "many"
    """``few``: patterns share a standing query with windows of the same tables. A checkpoint depends on it."""

    def paced(self, writer: Any) -> Any:
        """A query that is not started, at the pace of ``every``."""
        return writer.trigger(processingTime=self.every) if self.every else writer

    def silver_of(self, name: str) -> Silver:
        return next(one for one in self.silver if one.name == name)

    def prefix(self, what: str) -> str:
        """The prefix of the topics of clean or of dead events."""
        return f"{self.name}/{what}/"

    def inputs(self, of: str | Sequence[str]) -> list[str]:
        """The silver tables from which something is made, in order."""
        found: dict[str, None] = {}
        for name in [of] if isinstance(of, str) else of:
            step = next((one for one in self.enrich if one.name == name), None)
            if step is None:
                found[name] = None
            else:
                found.update(dict.fromkeys([*self.inputs(step.of), *([step.other] if step.other else [])]))
        return list(found)

    def joined(self, of: str | Sequence[str]) -> bool:
        """True if streams are joined on the way."""
        names = [of] if isinstance(of, str) else list(of)
        steps = [one for one in self.enrich if one.name in names]
        return any(one.other or self.joined(one.of) for one in steps)


def seconds(span: str) -> float:
    found = SPAN.fullmatch(span)
    if found is None:
        raise BadInput(f"{span!r} is no span of time: write it like '10 seconds' or '5 minutes'")
    return float(found[1]) * SPAN_S[found[2]]


def load(path: str | Path, url: str = "") -> Configuration:
    """Read and check a configuration. ``url`` stands for the one in the file; relative folders are below the file's.
    Raises ``BadInput`` with file, line, place and remedy."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read ({error}): name a configuration of a backbone") from None
    where = _Places(path, text)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is no TOML: {error}; correct it there") from None
    try:
        found = msgspec.convert(document, Configuration)
    except msgspec.ValidationError as error:
        said, _, at = str(error).partition(" - at `")
        raise where.error(_keys(at.rstrip("`")), f"{said}; docs/backbone.md has all keys") from None
    found.url = url or found.url or os.environ.get("PLURIBUS_URL", "")
    for name in ("state", "tables"):
        given = getattr(found, name)
        setattr(found, name, given if is_uri(given) else str((path.parent / given).absolute()))
    for step in found.enrich:
        if step.table and not is_uri(step.table):
            step.table = str((path.parent / step.table).absolute())
    _Checks(found, where).all()
    return found


def is_uri(text: str) -> bool:
    """True if the text has a scheme; else it is a local path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text) is not None


def kinds_of(silver: Silver) -> dict[str, str]:
    """The columns of a silver table, and Spark's names of their types."""
    fields = spark_fields(import_type(silver.type)) if silver.type else named_fields(silver.fields)
    own = {field.name: field.dataType.simpleString() for field in fields.fields}
    levels = dict.fromkeys(silver.levels, "string")
    return {**ENVELOPE_KINDS, **levels, **own}


ENVELOPE_KINDS = {"topic": "string", "offset": "bigint", "sender": "bigint", "time": "timestamp"}
"""The fields of the envelope that conditions may use."""


def pattern_of(topic: str) -> str:
    """The pattern of all topics that a template makes."""
    at = topic.find("{")
    if at < 0:
        return topic
    return "/".join([*topic[:at].split("/")[:-1], "#"])


class _Places:
    """Places in the text. TOML is parsed without places, so they are searched: the nth header of an array of tables,
    and the key behind it."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()

    def error(self, keys: Sequence[str | int], said: str, told: str = "") -> BadInput:
        line = self.line(keys)
        return BadInput(f"{self._path} line {line}{', ' if told else ''}{told}: {said}")

    def line(self, keys: Sequence[str | int]) -> int:
        """The line of the last of these keys that is found."""
        at, header = 0, ""
        for place, key in enumerate(keys):
            if isinstance(key, int):
                continue
            name = f"{header}.{key}" if header else key
            number = keys[place + 1] if place + 1 < len(keys) else None
            if isinstance(number, int):
                found, header = self._nth(f"[[{name}]]", number, at), name
            else:
                found = self._header_or_key(name, key, at)
                header = name
            if found is None:
                break
            at = found
        return at + 1

    def _nth(self, header: str, number: int, begin: int) -> int | None:
        places = [at for at, line in enumerate(self._lines) if at >= begin and line.strip().startswith(header)]
        return places[number] if number < len(places) else None

    def _header_or_key(self, name: str, key: str, begin: int) -> int | None:
        for at, line in enumerate(self._lines):
            if at >= begin and re.match(rf"\[{re.escape(name)}\]|\"?{re.escape(key)}\"?\s*=", line.strip()):
                return at
        return None


def _keys(path: str) -> list[str | int]:
    """Of ``$.silver[0].rules[1].where``."""
    return [int(one) if one.isdigit() else one for one in re.findall(r"\w+", path.removeprefix("$"))]


class _Checks:
    """Checks that the types of the structs cannot express."""

    def __init__(self, found: Configuration, where: _Places) -> None:
        self._found = found
        self._where = where
        self._columns: dict[str, dict[str, str]] = {}
        """Of silver tables and enriched ones, by name."""

    def all(self) -> None:
        found = self._found
        if NAME.fullmatch(found.name) is None:
            self._refuse(["name"], "", f"the name {found.name!r} is none: use letters, digits, - and _")
        if not found.url:
            self._refuse(["name"], "", "no url is given: write url = 'client://HOST:PORT/BUS', or set $PLURIBUS_URL")
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

    def _refuse(self, keys: Sequence[str | int], told: str, said: str) -> None:
        raise self._where.error(keys, said, told)

    def _sure(self, keys: Sequence[str | int], told: str, check: Any) -> Any:
        try:
            return check()
        except BadInput as error:
            raise self._where.error(keys, str(error), told) from None

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

    def _silver(self, number: int, silver: Silver) -> None:
        at: list[str | int] = ["silver", number]
        told = f"silver {silver.name!r}"
        self._sure([*at, "topics"], told, lambda: levels_of(silver.topics))
        if "," in silver.topics:
            self._refuse([*at, "topics"], told, f"topics = {silver.topics!r} has a comma: write a [[silver]] for each")
        if bool(silver.fields) == bool(silver.type):
            self._refuse(at, told, "write fields = 'price double, …' or type = 'module:Class', one of both")
        kinds = self._sure([*at, "fields" if silver.fields else "type"], told, lambda: kinds_of(silver))
        late_s = self._sure([*at, "late"], told, lambda: silver.late_s)
        if late_s > LATE_S_MAX:
            self._refuse([*at, "late"], told, f"late = {silver.late!r} is more than {LATE_S_MAX / 86_400:g} days")
        for name, level in silver.levels.items():
            if not name.isidentifier() or name in RESERVED:
                self._refuse([*at, "levels"], told, f"the level {name!r} cannot be a column: choose another name")
            if level < 1:
                self._refuse([*at, "levels"], told, f"{name} = {level}: levels of a topic are counted from 1")
        taken = [name for name in kinds if name in RESERVED and name not in ENVELOPE_KINDS]
        if taken:
            self._refuse([*at, "fields"], told, f"the field {taken[0]!r} is a name of the envelope: rename it")
        for key in silver.unique:
            if key != "id":
                self._column([*at, "unique"], told, kinds, key)
        if len(silver.rules) > RULES_MAX:
            self._refuse([*at, "rules", 0], told, f"there are {len(silver.rules)} rules: {RULES_MAX} is the limit")
        seen = {BODY}
        for place, rule in enumerate(silver.rules):
            keys, of = [*at, "rules", place], f"{told}, rule {rule.name!r}"
            if not rule.name or rule.name in seen:
                self._refuse([*keys, "name"], of, "the name of a rule is taken or empty: choose another")
            seen.add(rule.name)
            self._condition([*keys, "where"], of, rule.where, kinds)
        self._columns[silver.name] = kinds

    def _of(self, keys: Sequence[str | int], told: str, of: str | list[str]) -> dict[str, str]:
        names = [of] if isinstance(of, str) else of
        if not names:
            self._refuse([*keys, "of"], told, "of = [] is made of nothing: name a silver table")
        kinds: dict[str, str] = {}
        for name in names:
            if name not in self._columns:
                there = ", ".join(self._columns)
                self._refuse([*keys, "of"], told, f"there is no table {name!r} before this one: use {there}")
            for column, kind in self._columns[name].items():
                if kinds.setdefault(column, kind) != kind:
                    self._refuse([*keys, "of"], told, f"{column!r} is {kind} in {name!r} and {kinds[column]} elsewhere")
        return kinds

    def _enrich(self, number: int, step: Enrich) -> None:
        keys: list[str | int] = ["enrich", number]
        told = f"enrich {step.name!r}"
        kinds = dict(self._of(keys, told, step.of))
        if bool(step.table) == bool(step.other):
            self._refuse(keys, told, "write table = PATH, or with = 'another silver table', one of both")
        if not step.on:
            self._refuse([*keys, "on"], told, "on = [] joins everything with everything: name the keys")
        for key in step.on:
            self._column([*keys, "on"], told, kinds, key)
        if step.other:
            self._sure([*keys, "within"], told, lambda: seconds(step.within))
            if step.other not in self._columns:
                self._refuse([*keys, "with"], told, f"there is no table {step.other!r} before this one")
            beside = self._columns[step.other]
            for key in step.on:
                self._column([*keys, "on"], f"{told}, with {step.other!r}", beside, key)
            more = {f"right_{name}" if name in kinds else name: kind for name, kind in beside.items()}
            kinds.update({name: kind for name, kind in more.items() if name.removeprefix("right_") not in step.on})
        else:
            columns = self._sure([*keys, "columns"], told, lambda: named_fields(step.columns or "none"))
            more = {field.name: field.dataType.simpleString() for field in columns.fields}
            for key in step.on:
                self._column([*keys, "on"], f"{told}, columns", more, key)
            if step.since and more.get(step.since) != "timestamp":
                self._refuse([*keys, "since"], told, f"since = {step.since!r} is no timestamp among the columns")
            clash = [name for name in more if name in kinds and name not in step.on]
            if clash:
                self._refuse([*keys, "columns"], told, f"{clash[0]!r} is a column of {step.of!r} already: rename it")
            self._table([*keys, "table"], told, step.table, list(more))
            kinds.update(more)
        self._columns[step.name] = kinds

    def _table(self, keys: Sequence[str | int], told: str, where: str, columns: Sequence[str]) -> None:
        """Of a table on a disk of this machine: it is there, and the header of a CSV names the columns."""
        path = local_path(where)
        if path is None:
            return
        if not path.exists():
            self._refuse(keys, told, f"there is no table {path}: write where it is, below the folder of this file")
        if path.suffix == ".csv" and path.is_file():
            try:
                with path.open(newline="", encoding="utf-8-sig") as lines:
                    header = next(csv.reader(lines), [])
            except (OSError, UnicodeDecodeError, csv.Error) as error:
                self._refuse(keys, told, f"the table {path} cannot be read ({error}): write it as CSV with a header")
            missing = [name for name in columns if name not in header]
            if missing:
                said = f"the header of {path} has no {missing[0]!r}: it has {', '.join(header) or 'nothing'}"
                self._refuse(keys, told, f"{said}; name columns as the header does")

    def _gold(self, number: int, gold: Gold) -> None:
        keys: list[str | int] = ["gold", number]
        told = f"gold {gold.name!r}"
        kinds = self._of(keys, told, gold.of)
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

    def _answers(self, keys: Sequence[str | int], told: str, gold: Gold, kinds: Mapping[str, str]) -> Mapping[str, str]:
        """The columns that the answers have."""
        for name in gold.by:
            self._column([*keys, "by"], told, kinds, name)
        by = {name: kinds[name] for name in gold.by}
        window = {"start": "timestamp", "end": "timestamp"}
        if gold.kind in WINDOWED:
            self._sure([*keys, "width"], told, lambda: seconds(gold.width))
        if gold.every:
            self._sure([*keys, "every"], told, lambda: seconds(gold.every))
        match gold.kind:
            case "windows" | "top":
                found = {**window, **by, **self._values(keys, told, gold, kinds)}
                if gold.kind == "top":
                    if gold.k < 1:
                        self._refuse([*keys, "k"], told, f"the best {gold.k} are none: ask for 1 or more")
                    self._column([*keys, "score"], told, found, gold.score)
                    found["rank"] = "int"
                return found
            case "anomalies":
                self._column([*keys, "value"], told, kinds, gold.value)
                scores = dict.fromkeys(("mean", "deviation", "strangest", "score"), "double")
                return {**window, **by, "count": "bigint", **scores}
            case "last":
                if not gold.by:
                    self._refuse(keys, told, "kind = 'last' has no keys: write by = ['symbol']")
                return kinds
            case "pattern":
                if self._found.joined(gold.of):
                    said = "a pattern on joined streams has two clocks: let it be of silver tables, or of their list"
                    self._refuse([*keys, "of"], told, said)
                return self._pattern(keys, told, gold, kinds)
        return kinds

    def _pattern(self, keys: Sequence[str | int], told: str, gold: Gold, kinds: Mapping[str, str]) -> dict[str, str]:
        from ..pattern_columns import column_of, measure_type

        pattern = self._sure([*keys, "pattern"], told, lambda: parse_pattern(gold.pattern))
        if pattern.clauses.all_rows:
            self._refuse([*keys, "pattern"], told, "ALL ROWS PER MATCH gives no single answer: use ONE ROW PER MATCH")
        schema = _schema(kinds)
        clauses = pattern.clauses

        def checked() -> dict[str, str]:
            for path in (*clauses.order, *clauses.partition, *pattern.columns):
                column_of(schema, path)
            keyed = {".".join(path): column_of(schema, path).kind for path in clauses.partition}
            return {**keyed, **{one.name: measure_type(one.value, schema, pattern) for one in clauses.measures}}

        return self._sure([*keys, "pattern"], told, checked)  # type: ignore[no-any-return]

    def _values(self, keys: Sequence[str | int], told: str, gold: Gold, kinds: Mapping[str, str]) -> dict[str, str]:
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
            if match[2] != "*":
                self._column([*keys, "values"], told, kinds, match[2])
            whole = match[2] != "*" and kinds[match[2]]
            found[name] = {"count": "bigint", "avg": "double", "stddev": "double"}.get(match[1], str(whole))
        return found

    def _column(self, keys: Sequence[str | int], told: str, kinds: Mapping[str, str], name: str) -> None:
        if name not in kinds:
            self._refuse(keys, told, f"there is no column {name!r}: use one of {', '.join(kinds)}")

    def _condition(self, keys: Sequence[str | int], told: str, text: str, kinds: Mapping[str, str]) -> None:
        self._sure(keys, told, lambda: condition(text, kinds))

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


def _schema(kinds: Mapping[str, str]) -> Any:
    """Columns of these types, as Spark has them; what a pattern cannot read anyway is left out."""
    from pyspark.sql import types as T

    plain = {
        "string": T.StringType(),
        "bigint": T.LongType(),
        "double": T.DoubleType(),
        "boolean": T.BooleanType(),
        "timestamp": T.TimestampType(),
        "date": T.DateType(),
    }
    return T.StructType([T.StructField(name, plain[kind]) for name, kind in kinds.items() if kind in plain])


def time_of(gold: Gold) -> str:
    return gold.time or ("start" if gold.kind in WINDOWED else "time")


def condition(text: str, kinds: Mapping[str, str]) -> Filter:
    """A filter on columns of these types; ``BadFilter`` if it asks for others."""
    usable: Iterable[tuple[str, Any, Any]] = [
        (name, _PYTHON.get(kind, Any) | None, None) for name, kind in kinds.items() if name.isidentifier()
    ]
    return parse(text, type=msgspec.defstruct("Event", usable))


assert set(ENVELOPE_KINDS) <= set(ENVELOPE_NAMES)
