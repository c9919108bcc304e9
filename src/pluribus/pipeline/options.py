"""The options of ``format("pluribus")``, checked; and the names of Spark's source for Kafka.

``Settings`` is made beside the driver and in executors, and travels between them. It opens no connection by itself.

Names of Kafka's source mean here what they mean there, as far as a log without partitions allows: a topic is one
partition, number 0. They are translated, so that each thing has one name below this file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from ..core.errors import BadInput, BadTopic
from ..filters import parse
from ..pubsub.topics import ONE, REST, levels_of, matches
from ..runtime.clients.log_client import LogClient
from .columns import (
    POISON,
    RESERVED,
    checked_schema,
    envelope_fields,
    import_type,
    named_fields,
    packed_fields,
    spark_fields,
)
from .queue_source import message_fields
from .tables import PackedShape, Shape
from .trace_source import trace_fields

OPTIONS = (
    *("url", "trace", "topic", "topics", "regex", "type", "fields", "columns", "where", "start", "stop", "rows"),
    *("rows_min", "wait", "bytes", "parts", "parts_min", "part_rows", "gaps", "poison", "writer", "batch", "foreign"),
    *("lease", "archive", "queue", "reader", "dead", "packed"),
)
OF_SPARK = (
    *("path", "checkpointlocation", "queryname", "provider", "owner", "location", "comment", "collation", "external"),
    *("is_managed_location", "serialization.format"),
)
"""Options that Spark adds by itself, to queries and to tables of its catalog."""
METADATA = "pluribus"
"""Of a column: the options of its table."""
TWICE = "option."
"""How tables of the catalog name their options, in some places a second time."""
ALIASES = {
    "subscribe": "topics",
    "subscribepattern": "regex",
    "startingoffsets": "start",
    "endingoffsets": "stop",
    "startingoffsetsbytimestamp": "start",
    "endingoffsetsbytimestamp": "stop",
    "startingtimestamp": "start",
    "endingtimestamp": "stop",
    "maxoffsetspertrigger": "rows",
    "minoffsetspertrigger": "rows_min",
    "maxtriggerdelay": "wait",
    "maxbytespertrigger": "bytes",
    "minpartitions": "parts_min",
    "maxrecordsperpartition": "part_rows",
    "failondataloss": "gaps",
}
"""Names of Kafka's source, in lower case as Spark compares them."""
IGNORED = (
    *("includeheaders", "groupidprefix", "kafkaconsumer.polltimeoutms"),
    *("fetchoffset.numretries", "fetchoffset.retryintervalms"),
)
"""Names of Kafka's source that have no effect here: headers are always there, and there are no consumer groups."""
STRATEGY = "startingoffsetsbytimestampstrategy"
"""Of Kafka's source: where to begin in a topic that has no event of a time, or later."""
REFUSED = {
    "kafka.bootstrap.servers": "name the keepers: .option('url', 'client://HOST:PORT,HOST:PORT/BUS')",
    "assign": "a topic has no partitions here: .option('topics', 'a,b')",
    "kafka.group.id": "nobody reads as a group: leave it out, a checkpoint remembers how far a query is",
}
HIDDEN = "pluribus/places/"
"""The topics in which queries keep their places (``offsets.py``): a pattern matches them only if it names them."""
EARLIEST, LATEST = "earliest", "latest"
WAIT_S = 900.0
"""How long a micro-batch waits for ``rows_min``, if ``wait`` does not say: as in Kafka's source."""
Place = int | float | str
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}


def _expression(pattern: str) -> str:
    """A pattern of topics as a regular expression that matches the same ones, but for hidden topics."""
    levels = levels_of(pattern)
    named = ["[^/]*" if level == ONE else re.escape(level) for level in levels if level != REST]
    whole = "/".join(named)
    if levels[-1] == REST:
        whole = f"{whole}(?:/.*)?" if whole else ".*"
    return whole if pattern.startswith("pluribus/") else f"(?!{re.escape(HIDDEN)}){whole}"


class Settings:
    """Options, checked. Picklable."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.given = _translated(options)
        self._of_table = any(name.lower() == "provider" for name in options)
        """Whether a table of the catalog is made."""
        self.urls = [
            one for one in re.split(r"[;\s]+", self.given.get("url") or os.environ.get("PLURIBUS_URL", "")) if one
        ]
        """One for each log that is read or written."""
        self.topic = self.given.get("topic", "")
        self.trace = self.given.get("trace", "")
        self.queue = self.given.get("queue", "")
        if self.queue and (self.trace or {"topic", "topics", "regex"} & set(self.given)):
            raise BadInput("option queue stands alone: read topics and traces as tables of their own")
        self.where = self.given.get("where", "")
        self.archive = self.given.get("archive", "")
        if self.archive and len(self.urls) > 1:
            raise BadInput("an archive has the events of one log, by topic and offset: name one url, or no archive")
        self.gaps = self._choice("gaps", ("fail", "skip"))
        self.packed = self._choice("packed", ("false", "true")) == "true"
        self.poison = self._choice("poison", POISON)
        if self.where:
            parse(self.where)
        self._pattern = _regex(self.given["regex"]) if "regex" in self.given else None
        opened = [name for name in ("type", "fields", "columns", "poison", "trace", "queue") if name in self.given]
        if self.packed and opened:
            raise BadInput(f"packed batches are not looked into: leave out packed, or the option {opened[0]!r}")
        named = [name for name in ("topic", "topics", "regex") if name in self.given]
        if len(named) > 1:
            raise BadInput(f"options {' and '.join(named)} both say which topics: leave one of them out")

    def _choice(self, name: str, choices: Sequence[str]) -> str:
        value = self.given.get(name, choices[0])
        if value not in choices:
            raise BadInput(f"option {name}={value!r} is none of {', '.join(choices)}: choose one of them")
        return value

    def keepers(self, log: int = 0, begin_with: int = 0) -> LogClient:
        """A connection of this process to the keepers of one log, by its number in ``url``."""
        return LogClient(needed(self.urls[log] if self.urls else "", "url"), begin_with=begin_with)

    # Which topics.

    @cached_property
    def patterns(self) -> list[str]:
        """The patterns that keepers are asked for."""
        if self._pattern is not None:
            return ["#"]
        listed = [one.strip() for one in self.given.get("topics", "").split(",") if one.strip()]
        return listed or [needed(self.topic, "topic")]

    @property
    def several(self) -> bool:
        """True if more than one topic may be meant."""
        return len(self.patterns) > 1 or bool(set("+#") & set(self.patterns[0]))

    def wants(self, topic: str) -> bool:
        if self._pattern is not None:
            return self._pattern.fullmatch(topic) is not None and not topic.startswith(HIDDEN)
        return self._wanted.fullmatch(topic) is not None

    @cached_property
    def _wanted(self) -> re.Pattern[str]:
        """All patterns as one expression: it is asked for each of thousands of topics."""
        return re.compile("|".join(_expression(pattern) for pattern in self.patterns))

    # How much.

    def number(self, name: str) -> int | None:
        value = self.given.get(name)
        if value is None:
            return None
        if not value.isdigit() or int(value) < 1:
            raise BadInput(f"option {name}={value!r} is no number: use 1 or more")
        return int(value)

    @property
    def wait_s(self) -> float:
        """How long a micro-batch may wait for ``rows_min``."""
        text = self.given.get("wait", "")
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?", text.strip().lower()) if text else None
        if text and found is None:
            raise BadInput(f"option wait={text!r} is no time: write seconds, or 500ms, 30s, 15m, 1h")
        return WAIT_S if found is None else float(found[1]) * _UNITS[found[2] or "s"]

    # From where to where.

    def placing(self, option: str, default: str) -> Callable[[str], Place]:
        """A function that says where a topic starts or stops: ``earliest``, ``latest``, an offset, or a time in seconds
        (a float)."""
        value = self.given.get(option, default)
        if not value.startswith("{"):
            same = _place(option, value)
            return lambda topic: same
        places, other = _places(option, value), _place(option, default)

        def place(topic: str) -> Place:
            if topic in places:
                return places[topic]
            return next((found for pattern, found in places.items() if matches(pattern, topic)), other)

        return place

    # Columns.

    def body_fields(self) -> StructType:
        if "type" in self.given:
            return spark_fields(import_type(self.given["type"]))
        return named_fields(self.given["fields"]) if "fields" in self.given else StructType()

    def schema(self) -> StructType:
        """Of a table of the catalog every column carries the options, because Spark 4.3 keeps the columns of such a
        table and not its options."""
        if self.packed:
            found = packed_fields()
        else:
            whole = self._of_messages() if self.queue else trace_fields() if self.trace else self._of_events()
            found = self._chosen(whole)
        if self._of_table:
            told = {METADATA: json.dumps(self.given)}
            found = StructType([StructField(one.name, one.dataType, one.nullable, told) for one in found.fields])
        return found

    def of(self, schema: StructType) -> Settings:
        """With the options that the columns of a table carry; those of the query go before them."""
        told = next((one.metadata[METADATA] for one in schema.fields if METADATA in (one.metadata or {})), None)
        return self if told is None else Settings({**json.loads(told), **self.given})

    def _of_messages(self) -> StructType:
        fields, envelope = self.body_fields(), message_fields()
        taken = [name for name in fields.names if name in envelope.names]
        if taken:
            raise BadInput(f"the field {taken[0]!r} is a name of the envelope: read the body as bytes and rename it")
        whole = StructType([*envelope.fields, *fields.fields])
        return whole if fields.fields else whole.add("body", BinaryType())

    def _of_events(self) -> StructType:
        fields = self.body_fields()
        taken = [name for name in fields.names if name in RESERVED]
        if taken:
            raise BadInput(f"the field {taken[0]!r} is a name of the envelope: read the body as bytes and rename it")
        whole = StructType([*envelope_fields().fields, *fields.fields])
        if not fields.fields:
            whole = whole.add("kind", StringType()).add("body", BinaryType())
        elif self.poison == "aside":
            whole = whole.add("reason", StringType()).add("body", BinaryType())
        return whole

    def _chosen(self, whole: StructType) -> StructType:
        wanted = [name.strip() for name in self.given.get("columns", "").split(",") if name.strip()]
        unknown = [name for name in wanted if name not in whole.names]
        if unknown:
            raise BadInput(f"there is no column {unknown[0]!r}: use some of {', '.join(whole.names)}")
        return StructType([whole[name] for name in wanted]) if wanted else whole

    def shape(self, schema: StructType) -> Shape:
        """Of the schema that the options make, or of one that ``.schema()`` was given."""
        if self.packed:
            return PackedShape(packed_fields(), schema)
        fields = [name for name in checked_schema(schema).names if name not in RESERVED]
        return Shape(schema, fields, self.poison)


def needed(value: str, option: str) -> str:
    if not value:
        raise BadInput(f"option {option!r} is missing: name it with .option({option!r}, ...)")
    return value


def _translated(options: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    told: dict[str, str] = {}
    given = {name.lower() for name in options}
    for name, value in options.items():
        plain = name.lower()
        if plain.startswith(TWICE):
            plain = plain.removeprefix(TWICE)
            if plain in given:
                continue
        if plain in OF_SPARK or plain in IGNORED:
            continue
        if plain == STRATEGY:
            if value != LATEST:
                raise BadInput(
                    f"option {name}={value!r}: a topic without an event of that time or later is read from its end; "
                    f"say {LATEST!r}, or leave it out"
                )
            continue
        if plain in REFUSED:
            raise BadInput(f"option {name!r} is of Kafka: {REFUSED[plain]}")
        ours = ALIASES.get(plain, plain)
        if ours not in OPTIONS:
            raise BadInput(f"there is no option {name!r}: use one of {', '.join(OPTIONS)}")
        if ours in told:
            raise BadInput(f"options {told[ours]!r} and {name!r} say the same: leave one of them out")
        told[ours] = name
        found[ours] = _value(plain, str(value))
    return found


def _value(name: str, value: str) -> str:
    """A value of one of Kafka's names, as ours has it."""
    if name == "failondataloss":
        if value.lower() not in ("true", "false"):
            raise BadInput(f"option failOnDataLoss={value!r} is neither true nor false: choose one of them")
        return "fail" if value.lower() == "true" else "skip"
    if name in ("startingtimestamp", "endingtimestamp"):
        return _moment(name, value)
    if name in ("startingoffsetsbytimestamp", "endingoffsetsbytimestamp"):
        return json.dumps({topic: _moment(name, _of_partition(one)) for topic, one in _object(name, value).items()})
    return value


def _moment(name: str, value: Any) -> str:
    """Milliseconds since 1970 as a time in text."""
    try:
        return datetime.fromtimestamp(int(value) / 1_000, UTC).isoformat()
    except (ValueError, TypeError, OverflowError, OSError):
        raise BadInput(f"option {name} has {value!r}: give milliseconds since 1970") from None


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadInput(f'option {option} is no JSON ({error}): write {{"stocks/ibm": 100}}') from None
    if not isinstance(found, dict) or not found:
        raise BadInput(f'option {option}={text!r} names no topic: write {{"stocks/ibm": 100}}')
    return found


def _of_partition(value: Any) -> Any:
    """Kafka's ``{"0": value}``: a topic is one partition here."""
    if not isinstance(value, dict):
        return value
    if set(value) != {"0"}:
        raise BadInput(f"partitions {', '.join(map(str, value))}: a topic is one partition here, name 0 or none")
    return value["0"]


def _places(option: str, text: str) -> dict[str, Place]:
    found: dict[str, Place] = {}
    for topic, value in _object(option, text).items():
        try:
            levels_of(topic)
        except BadTopic as error:
            raise BadInput(f"option {option}: {error}") from None
        found[topic] = _place(option, _of_partition(value))
    return found


def _place(option: str, value: Any) -> Place:
    if value in (EARLIEST, LATEST):
        return str(value)
    if type(value) is int or (isinstance(value, str) and re.fullmatch(r"-?\d+", value)):
        number = int(value)
        if number >= -2:
            return number if number >= 0 else {-2: EARLIEST, -1: LATEST}[number]
    if isinstance(value, str):
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            return float((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    raise BadInput(f"option {option}={value!r} is no place: use earliest, latest, an offset or a time")


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise BadInput(f"option regex={text!r} is no regular expression ({error}): write it as Python does") from None
