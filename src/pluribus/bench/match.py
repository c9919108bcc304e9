"""``pluribus bench match``: events against the filters of very many subscriptions.

Each subscription has one equality, among 1,000 values by Zipf's law, and four ranges, so wide that 0.1 % of all
subscriptions match an event; events draw their values by the same law. *Ranges only* leaves out the equality. Events
come in batches of 1,000, as plain dictionaries; the time is measured from the list of events to the lists of keys. The
linear scan beside it calls the compiled predicates one after the other, and must find the same.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np

from ..filters import Filter, Template
from ..filters.index import Index
from .report import Curve, Goal, Result, at_least, report, result

VALUES = 1_000
FIELDS = ("a", "b", "c", "d")
SHARE = 0.001
BATCH = 1_000
SCANNED_EVENTS = 3
RANGES = " AND ".join(f"{field} BETWEEN :{field}0 AND :{field}1" for field in FIELDS)
TEMPLATES = {True: Template(f"k = :k AND {RANGES}"), False: Template(RANGES)}

Event = dict[str, Any]
Progress = Callable[[str], None]


class Workload:
    """Filters and events; the same for the same numbers."""

    def __init__(self, count: int, equality: bool) -> None:
        self.count = count
        self.equality = equality
        self._random = np.random.default_rng(count)
        weights = 1 / np.arange(1, VALUES + 1)
        self._weights = weights / weights.sum()
        same_value = float((self._weights**2).sum()) if equality else 1.0
        self.width = (SHARE / same_value) ** (1 / len(FIELDS))

    def filters(self) -> Iterator[Filter]:
        template = TEMPLATES[self.equality]
        values = self._random.choice(VALUES, self.count, p=self._weights)
        lows = self._random.random((self.count, len(FIELDS))) * (1 - self.width)
        for value, row in zip(values.tolist(), lows.tolist(), strict=True):
            bound: dict[str, Any] = {"k": f"v{value}"} if self.equality else {}
            for field, low in zip(FIELDS, row, strict=True):
                bound[f"{field}0"], bound[f"{field}1"] = low, low + self.width
            yield template.bind(bound)

    def events(self, count: int) -> list[Event]:
        values = self._random.choice(VALUES, count, p=self._weights)
        rows = self._random.random((count, len(FIELDS)))
        return [
            {"k": f"v{value}", **dict(zip(FIELDS, row, strict=True))}
            for value, row in zip(values.tolist(), rows.tolist(), strict=True)
        ]


def run(
    *,
    quick: bool = False,
    subscriptions: int = 100_000,
    progress: Progress = lambda text: None,
    **_: Any,
) -> dict[str, Any]:
    sizes = [max(subscriptions // 100, 1), max(subscriptions // 10, 1), subscriptions, 10 * subscriptions]
    runs = 3 if quick else 10
    results: list[Result] = []
    goals: list[Goal] = []
    curves = []
    for equality, name in ((True, "one equality, four ranges"), (False, "ranges only")):
        points = []
        for size in sizes[:-1] if quick or not equality else sizes:
            progress(f"{size:,} subscriptions, {name}")
            compared = size == subscriptions
            found, rates = _measure(size, equality, f"{size:,} subscriptions, {name}", runs, compared)
            results += found
            points.append([float(size), round(1e6 / rates["match"], 3)])
            if equality and size == subscriptions:
                goals.append(at_least(f"events/s among {size:,}", rates["match"], 10_000))
                goals.append(at_least(f"{size:,}: times a linear scan", rates["match"] / rates["scan"], 20))
            elif equality and size > subscriptions:
                goals.append(at_least(f"events/s among {size:,}", rates["match"], 1_000))
        curves.append(Curve(name, "subscriptions", "µs/event", points))
    return report("match", results, goals, curves)


def _measure(count: int, equality: bool, case: str, runs: int, compared: bool) -> tuple[list[Result], dict[str, float]]:
    workload = Workload(count, equality)
    filters = list(workload.filters())
    index = Index()
    began = perf_counter()
    for key, each in enumerate(filters):
        index.add(key, each)
    added = count / (perf_counter() - began)
    index.match(workload.events(BATCH))
    values, matches = [], 0
    for _ in range(runs):
        events = workload.events(BATCH)
        gc.collect(0)
        began = perf_counter()
        found = index.match(events)
        values.append(BATCH / (perf_counter() - began))
        matches += sum(map(len, found))
    matched = result(case, "events/s", values)
    rates = {"match": matched.value}
    results = [matched]
    if compared:
        results.append(result(f"{case}: added", "subscriptions/s", [added]))
        results.append(result(f"{case}: matching", "%", [100 * matches / (runs * BATCH * count)]))
        scanned = result(f"{case}: linear scan", "events/s", _scan(filters, index, workload.events(SCANNED_EVENTS)))
        rates["scan"] = scanned.value
        results.append(scanned)
    return results, rates


def _scan(filters: list[Filter], index: Index, events: list[Event]) -> list[float]:
    predicates = [each.predicate() for each in filters]
    rates = []
    for event in events:
        began = perf_counter()
        found = [key for key, predicate in enumerate(predicates) if predicate(event)]
        rates.append(1 / (perf_counter() - began))
        (indexed,) = index.match([event])
        assert sorted(indexed, key=_number) == found, "the index and the scan disagree"
    return rates


def _number(key: Any) -> int:
    return int(key)
