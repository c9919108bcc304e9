"""The report of a backbone, told without Spark where its state is a local folder: what ``pluribus pipeline report``
prints."""

from __future__ import annotations

from typing import Any

import msgspec

from ...runtime.clients.log_client import LogClient
from ..files import files_of
from .parts import Configuration
from .report import Report


def told(configuration: Configuration, spark: Any = None) -> dict[str, Any]:
    """Totals, rows by run, table and day, rules, watermarks, and how many events wait to be read."""
    report = Report(files_of(configuration.state, spark))
    summary = report.summary
    behind = 0
    with LogClient(configuration.url) as keepers:
        for silver in configuration.silver:
            for known in keepers.topics(silver.topics):
                behind += max(known.end - max(summary.next.get(known.topic, 0), known.first), 0)
    return {
        "backbone": configuration.name,
        **report.totals(),
        "batch": summary.number,
        "behind": behind,
        "watermarks_us": dict(summary.watermarks_us),
        "rules": dict(summary.rules),
        "days": [{**msgspec.to_builtins(row), "adds_up": row.adds_up} for row in summary.rows],
    }
