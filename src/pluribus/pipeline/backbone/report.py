"""The data-quality report: the outcome of every event that was read, by run, table and day.

    read = good + dead + dropped + late + duplicate

It is kept as *entries*, one a micro-batch, and adds up after any number of kills because an entry counts once:

1. When the verdicts of batch N are counted, its entry is written down as *prepared*.
2. Good and dead events are published, in one commit that keepers remember under (writer, N).
3. The entry is renamed to *done*.

Killed before 2, the batch is judged and prepared again. Killed between 2 and 3, the keepers know batch N: the prepared
entry matches the published events, and becomes done as it is, even if rules were changed meanwhile. ``resumed`` decides
which it is.

Every ``FOLD`` entries all are folded into a summary. ``next`` has the offset up to which each topic was read: offsets
that are missing between it and the next events are *lost*, removed before they were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...core.errors import BadInput
from ..files import Files
from .verdicts import VERDICTS

FOLD = 64
FOLDER = "report"
LOST = "lost"
COUNTED = ("read", *VERDICTS, LOST)


class Row(msgspec.Struct):
    """Counts of one run, table and day (of the events)."""

    run: str
    table: str
    day: str
    read: int = 0
    good: int = 0
    dead: int = 0
    dropped: int = 0
    late: int = 0
    duplicate: int = 0
    lost: int = 0

    @property
    def adds_up(self) -> bool:
        return self.read == self.good + self.dead + self.dropped + self.late + self.duplicate

    def add(self, other: Row) -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Entry(msgspec.Struct):
    """A micro-batch."""

    number: int
    query: str
    run: str
    rows: list[Row] = []
    rules: dict[str, int] = {}
    """Events that were broken by a rule, by ``TABLE/RULE``."""
    next: dict[str, int] = {}
    watermarks_us: dict[str, int] = {}
    seen: list[int] = []
    """The batches whose keys are looked at for duplicates from now on."""


class Summary(msgspec.Struct):
    """All entries up to a number."""

    number: int = -1
    query: str = ""
    rows: list[Row] = []
    rules: dict[str, int] = {}
    next: dict[str, int] = {}
    watermarks_us: dict[str, int] = {}
    seen: list[int] = []


_encode = msgspec.json.Encoder().encode
_entry = msgspec.json.Decoder(Entry)
_summary = msgspec.json.Decoder(Summary)


class Report:
    """The report in a folder. Reading it needs no Spark."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.summary = Summary()
        self._folded = -1
        self.load()

    def load(self) -> None:
        names = [found.path.removeprefix(f"{FOLDER}/") for found in self._files.list(FOLDER)]
        summaries = sorted(name for name in names if name.startswith("summary-"))
        self.summary = self._read(summaries[-1], _summary) if summaries else Summary()
        self._folded = self.summary.number
        for name in sorted(name for name in names if name.endswith(".done")):
            entry = self._read(name, _entry)
            if entry.number > self.summary.number:
                self._fold(entry)

    def _read(self, name: str, decoder: Any) -> Any:
        try:
            return decoder.decode(self._files.read(f"{FOLDER}/{name}"))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{self._files.under(FOLDER)}/{name} is no part of a report ({error}): restore the folder of the state"
            ) from None

    # Writing.

    def prepare(self, entry: Entry) -> None:
        self._files.write(f"{FOLDER}/{entry.number:012d}.prepared", _encode(entry))

    def prepared(self, number: int) -> Entry | None:
        name = f"{number:012d}.prepared"
        return self._read(name, _entry) if self._files.exists(f"{FOLDER}/{name}") else None

    def commit(self, entry: Entry) -> None:
        """The prepared entry counts from now on."""
        name = f"{FOLDER}/{entry.number:012d}"
        self._files.move(f"{name}.prepared", f"{name}.done")
        self._fold(entry)
        if entry.number - self._folded >= FOLD:
            self._files.write(f"{FOLDER}/summary-{entry.number:012d}.json", _encode(self.summary))
            for found in self._files.list(FOLDER):
                stem = found.path.removeprefix(f"{FOLDER}/").removeprefix("summary-").partition(".")[0]
                if stem.isdigit() and int(stem) < entry.number:
                    self._files.remove(found.path)
            self._folded = entry.number

    def _fold(self, entry: Entry) -> None:
        total = self.summary
        rows = {(row.run, row.table, row.day): row for row in total.rows}
        for row in entry.rows:
            mine = rows.get((row.run, row.table, row.day))
            if mine is None:
                total.rows.append(msgspec.structs.replace(row))
            else:
                mine.add(row)
        for name, count in entry.rules.items():
            total.rules[name] = total.rules.get(name, 0) + count
        total.next.update(entry.next)
        total.watermarks_us.update(entry.watermarks_us)
        total.seen = entry.seen
        total.number, total.query = entry.number, entry.query

    # Reading.

    def totals(self, run: str = "") -> dict[str, Any]:
        """Of one run, or of all: ``read``, the verdicts, ``lost``, and whether they add up."""
        return totals(row for row in self.summary.rows if not run or row.run == run)


def totals(rows: Iterable[Row]) -> dict[str, Any]:
    total = Row("", "", "")
    for row in rows:
        total.add(row)
    return {**{name: getattr(total, name) for name in COUNTED}, "adds_up": total.adds_up}


def rows_of(
    run: str, counted: Iterable[Mapping[str, Any]], known: Mapping[str, int]
) -> tuple[list[Row], dict[str, int]]:
    """Report rows of a micro-batch, and the next offset of each topic.

    ``counted`` has, for each table, topic, day and verdict: ``rows``, ``least`` and ``most`` offset. What is missing
    between the next offset of before and these is lost, on the first day of the topic in this batch. Of a topic that is
    new, reading begins at its first offset here.
    """
    rows: dict[tuple[str, str], Row] = {}
    topics: dict[str, list[int]] = {}
    homes: dict[str, tuple[str, str]] = {}
    for one in counted:
        key = (one["table"], one["day"])
        row = rows.setdefault(key, Row(run, *key))
        row.read += one["rows"]
        setattr(row, one["verdict"], getattr(row, one["verdict"]) + one["rows"])
        at = topics.setdefault(one["topic"], [one["least"], one["most"], 0])
        at[:] = [min(at[0], one["least"]), max(at[1], one["most"]), at[2] + one["rows"]]
        homes[one["topic"]] = min(homes.get(one["topic"], key), key)
    following: dict[str, int] = {}
    for topic, (least, most, count) in topics.items():
        following[topic] = most + 1
        missing = most + 1 - known.get(topic, least) - count
        if missing > 0:
            rows[homes[topic]].lost += missing
    return list(rows.values()), following
