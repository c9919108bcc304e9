"""Traces as tables: the actions and observations of members, as Parquet files that Spark reads at any size.

A trace is a folder of Parquet files (or one such file). A row is one ``Happening`` of a run: simulated, or written down
by an ``Observer`` in real processes. ``run`` tells several runs in one folder apart; ``place`` is the row's place in
the history of its run. Bodies are kept as a digest of 64 bits: checkers ask only whether two are the same.

A row whose ``what`` is ``checks`` names, in ``promises``, what the run was promised beside the promises of its groups;
a run without one is checked for everything that its rows speak of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from ..core.errors import BadInput, MissingExtra
from ..sim.machinery.history import Happening, History

ROWS_A_GROUP = 250_000
HISTORY_SUFFIX, TRACE_SUFFIX = ".history", ".trace"
REAL = "real"
"""The name of a run that members wrote down themselves."""


def arrow() -> Any:
    """pyarrow, or a sentence that says how to get it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("traces are Parquet files: pip install 'pluribus[spark]'") from None
    return pyarrow


def schema() -> Any:
    pa = arrow()
    ids = pa.int64()
    return pa.schema(
        [
            pa.field("run", pa.string(), False),
            pa.field("place", pa.int64(), False),
            pa.field("at", pa.float64(), False),
            pa.field("member", ids, False),
            pa.field("what", pa.string(), False),
            pa.field("group", pa.string(), False),
            pa.field("sender", ids, False),  # of a view: its number
            pa.field("number", ids, False),  # of a view: its leader
            pa.field("digest", pa.int64(), False),
            pa.field("members", pa.list_(ids), False),
            pa.field("lineage", ids, False),
            pa.field("epoch", ids, False),
            pa.field("parent_sender", ids),
            pa.field("parent_number", ids),
            pa.field("orphan", pa.bool_(), False),
            pa.field("promises", pa.string(), False),
            pa.field(
                "late", pa.bool_(), False
            ),  # of a delivery: it belongs to the last primary, on the way to the next
        ]
    )


def write_history(
    folder: str | PathLike[str], run: str, happenings: Iterable[Happening], checks: Iterable[str] = ()
) -> Path:
    """Write one run into a folder of runs, as a file of its own, which is returned. ``checks`` is what it was
    promised."""
    pa = arrow()
    named = tuple(checks)
    first = [Happening(0.0, 0, "checks", promises=" ".join(named))] if named else []
    path = Path(folder) / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', run)}.parquet"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = pa.parquet.ParquetWriter(path, schema())
    except OSError as error:
        raise BadInput(f"the trace {path} cannot be written ({error.strerror}): name a writable folder") from None
    with writer:
        place = -len(first)
        source = iter([*first, *happenings])
        while rows := list(islice(source, ROWS_A_GROUP)):
            writer.write_table(rows_table(run, place, rows))
            place += len(rows)
    return path


def rows_table(run: str, place: int, rows: Sequence[Happening]) -> Any:
    """Happenings of a run as an Arrow table, the first of them at this place."""
    pa = arrow()
    parents = [h.parent or (None, None) for h in rows]
    columns = [
        [run] * len(rows),
        range(place, place + len(rows)),
        [h.at for h in rows],
        [int(h.member) for h in rows],
        [h.what for h in rows],
        [h.group for h in rows],
        [int(h.id[0]) for h in rows],
        [int(h.id[1]) for h in rows],
        [digest(h.body) for h in rows],
        [list(map(int, h.members)) for h in rows],
        [h.chain[0] for h in rows],
        [h.chain[1] for h in rows],
        [sender for sender, _ in parents],
        [number for _, number in parents],
        [h.orphan for h in rows],
        [h.promises for h in rows],
        [h.late for h in rows],
    ]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema(), strict=True)], schema=schema())


def digest(body: bytes) -> int:
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "big", signed=True)


def read_lines(path: str | PathLike[str], start: int = 0, stop: int | None = None) -> list[Happening]:
    """The history that a process wrote line by line, as JSON, or some of its lines; a last line that it was killed in
    does not count."""
    try:
        text = Path(path).read_bytes()
        decode = msgspec.json.Decoder(Happening).decode
        return [decode(line) for line in text[: text.rfind(b"\n") + 1].splitlines()[start:stop]]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no history ({error}): an observer writes one line of JSON a happening") from None


def written_by_members(path: Path) -> list[Path]:
    """The files in a folder that members of a run wrote, or the one file that it is: histories, or traces."""
    found = sorted(path.iterdir()) if path.is_dir() else [path]
    return [one for one in found if one.suffix in (HISTORY_SUFFIX, TRACE_SUFFIX) and one.is_file()]


def history_in(path: str | PathLike[str], start: int = 0, stop: int | None = None) -> list[Happening]:
    """What one member wrote down, or some of its rows: lines of an observer, or a trace, which is run again."""
    if Path(path).suffix == TRACE_SUFFIX:
        from .traced import history_of_trace

        return history_of_trace(path)[start:stop]
    return read_lines(path, start, stop)


def gather(folder: str | PathLike[str], run: str, paths: Iterable[str | PathLike[str]]) -> Path:
    """Make one run of what several processes of one machine wrote down, by the machine's one clock; up to where
    somebody leaves."""
    merged = History()
    histories = _until_somebody_left([history_in(path) for path in paths])
    merged.happenings = sorted((h for history in histories for h in history), key=lambda h: h.at)
    merged.sends_first()
    return write_history(folder, run, merged.happenings)


def _until_somebody_left(histories: list[list[Happening]]) -> list[list[Happening]]:
    """Each member's history, to the first view of the bus that somebody is missing in who left by himself. Primaries
    are promised a majority of the one before as long as members crash; a member that leaves may take it along."""
    left = {h.member for history in histories for h in history if h.what == "left"}
    found: list[list[Happening]] = []
    for history in histories:
        members: set[int] = set()
        kept: list[Happening] = []
        for h in history:
            if h.what == "bus":
                if (members - set(h.members)) & left:
                    break
                members = set(h.members)
            kept.append(h)
        found.append(kept)
    return found


class KeepHistories:
    """What a campaign does with the history of each seed: one file of the folder a seed. Picklable, for its workers."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._folder = str(folder)

    def __call__(self, scenario: str, seed: int, history: History, checks: Iterable[str]) -> None:
        write_history(self._folder, f"{scenario}-{seed}", history.happenings, checks)
