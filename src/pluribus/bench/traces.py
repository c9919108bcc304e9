"""A trace of any size to check: members that keep every promise, in groups of every order, through changes of views.

In rounds: every member sends some messages to a group, then all deliver them, in one order. Such a trace keeps the
promises of every order, and is as dense as a trace can be: it has only sends, deliveries and views.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..pipeline.traces import arrow, schema

GROUPS = {"talk": "fifo", "causes": "causal", "room": "semantic", "ledger": "total safe"}
MEMBERS = 10
EACH = 100
"""Messages of one member in one round."""
ROUND = MEMBERS * EACH
ROUNDS_A_VIEW = 40
IDS = np.arange(1, MEMBERS + 1, dtype="i8") * 1_000_003


def write_trace(folder: Path, deliveries: int) -> int:
    """Write about so many deliveries, as files of one run; returns how many were written."""
    parquet = arrow().parquet
    folder.mkdir(parents=True, exist_ok=True)
    rounds = max(deliveries // (ROUND * MEMBERS), 1)
    with parquet.ParquetWriter(folder / "run.parquet", schema()) as writer:
        for table in _tables(rounds):
            writer.write_table(table)
    return rounds * ROUND * MEMBERS


def _tables(rounds: int) -> Iterator[Any]:
    pa = arrow()
    names = list(GROUPS)
    sent = dict.fromkeys(names, 0)
    place = view = 0
    waiting = []
    for number in range(rounds):
        if number % ROUNDS_A_VIEW == 0:
            view += 1
            waiting.append(_views(place, view))
            place += len(waiting[-1])
        name = names[number % len(names)]
        waiting.append(_round(place, name, sent[name]))
        sent[name] += EACH
        place += len(waiting[-1])
        if len(waiting) >= 20:
            yield pa.concat_tables(waiting)
            waiting = []
    waiting.append(_rows(place, {"what": ["settled"], "members": [IDS.tolist()], "at": [float(place)]}))
    yield pa.concat_tables(waiting)


def _round(place: int, group: str, first: int) -> Any:
    """One round: all sends, then every member's deliveries, in one order."""
    senders = np.tile(IDS, EACH)
    numbers = np.repeat(np.arange(first, first + EACH, dtype="i8"), MEMBERS)
    digests = senders * 31 + numbers
    columns = {
        "member": np.concatenate([senders, np.repeat(IDS, ROUND)]),
        "what": ["send"] * ROUND + ["deliver"] * (ROUND * MEMBERS),
        "group": [group] * (ROUND * (MEMBERS + 1)),
        "sender": np.tile(senders, MEMBERS + 1),
        "number": np.tile(numbers, MEMBERS + 1),
        "digest": np.tile(digests, MEMBERS + 1),
    }
    if group == "room":  # each answers the one before it
        for name, values in (("parent_sender", senders), ("parent_number", numbers)):
            parents = np.roll(values, 1)
            mask = np.zeros(ROUND, bool)
            mask[0] = True
            columns[name] = arrow().array(np.tile(parents, MEMBERS + 1), mask=np.tile(mask, MEMBERS + 1))
    return _rows(place, columns)


def _views(place: int, view: int) -> Any:
    """All members enter a view of the bus, and of each group."""
    leader = int(IDS[0])
    count = MEMBERS * (1 + len(GROUPS))
    names = [name for name in ("", *GROUPS) for _ in range(MEMBERS)]
    return _rows(
        place,
        {
            "member": np.tile(IDS, 1 + len(GROUPS)),
            "what": ["bus"] * MEMBERS + ["view"] * (count - MEMBERS),
            "group": names,
            "sender": np.full(count, view, "i8"),
            "number": np.full(count, leader, "i8"),
            "members": [IDS.tolist()] * count,
            "lineage": np.concatenate([np.full(MEMBERS, 7, "i8"), np.zeros(count - MEMBERS, "i8")]),
            "epoch": np.concatenate([np.full(MEMBERS, view, "i8"), np.zeros(count - MEMBERS, "i8")]),
            "promises": ["" if not name else GROUPS[name] for name in names],
        },
    )


def _rows(place: int, columns: dict[str, Any]) -> Any:
    """A table of these columns; the others are empty."""
    pa = arrow()
    count = len(columns["what"])
    places = np.arange(place, place + count, dtype="i8")
    nothing = {"int64": 0, "double": 0.0, "string": "", "bool": False}
    found = []
    for field in schema():
        if field.name in columns:
            found.append(pa.array(columns[field.name], field.type))
        elif field.name == "place":
            found.append(pa.array(places))
        elif field.name == "at":
            found.append(pa.array(places.astype("f8")))
        elif field.name == "run":
            found.append(pa.repeat(pa.scalar("bench"), count))
        elif field.nullable:
            found.append(pa.nulls(count, field.type))
        elif field.name == "members":
            found.append(pa.array([[]] * count, field.type))
        else:
            found.append(pa.repeat(pa.scalar(nothing[str(field.type)], field.type), count))
    return pa.Table.from_arrays(found, schema=schema())
