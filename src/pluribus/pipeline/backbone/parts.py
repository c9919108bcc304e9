"""The parts of a configuration: tables, rules, joins, answers; and small questions about them.

They are read from a file by ``configuration.py``, and checked by ``checks.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal

import msgspec

from ...core.errors import BadInput
from ...filters import Filter, parse
from ..columns import ENVELOPE_NAMES, import_type, named_fields, spark_fields

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
    """``few``: patterns share a standing query with windows of the same tables. It counts for golds that begin."""

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


def fields_of(silver: Silver) -> Any:
    """The fields of its bodies, as Spark has them."""
    return spark_fields(import_type(silver.type)) if silver.type else named_fields(silver.fields)


def kinds_of(silver: Silver) -> dict[str, str]:
    """The columns of a silver table, and Spark's names of their types."""
    own = {field.name: field.dataType.simpleString() for field in fields_of(silver).fields}
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


def time_of(gold: Gold) -> str:
    return gold.time or ("start" if gold.kind in WINDOWED else "time")


def condition(text: str, kinds: Mapping[str, str]) -> Filter:
    """A filter on columns of these types; ``BadFilter`` if it asks for others."""
    usable: Iterable[tuple[str, Any, Any]] = [
        (name, _PYTHON.get(kind, Any) | None, None) for name, kind in kinds.items() if name.isidentifier()
    ]
    return parse(text, type=msgspec.defstruct("Event", usable))


assert set(ENVELOPE_KINDS) <= set(ENVELOPE_NAMES)
