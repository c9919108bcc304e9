"""Reads docs/features.md, the table of promises: row, feature, module, example or command, test."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "features.md"
NOTHING_YET = "–"


class Feature(NamedTuple):
    row: str
    promise: str
    module: str
    example: str
    test: str

    @property
    def planned(self) -> bool:
        return self.module.startswith("planned")


def feature_table() -> list[Feature]:
    rows = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if re.match(r"\| [A-Z][0-9]+ ", line)]
    return [Feature(*(cell.strip() for cell in row.strip().strip("|").split(" | "))) for row in rows]


def paths_in(cell: str) -> list[str]:
    """The paths that a cell names, each perhaps with the function of a test: `tests/a/test_b.py::test_c`."""
    return re.findall(r"`((?:src|tests|docs|examples)/[^`]+)`", cell)


def promises_not_shown(passed: set[str], skipped: set[str]) -> list[str]:
    """One sentence for each test that the table names and that neither passed nor was skipped for want of a server."""
    return [
        f"{feature.row} names {path}, which did not run and pass"
        for feature in feature_table()
        if not feature.planned
        for path in paths_in(feature.test)
        if not any(_is_part_of(test, path) for test in passed | skipped)
    ]


def _is_part_of(test: str, path: str) -> bool:
    """Whether a test's id is the path itself, a function in it or below it, or a parametrisation of it."""
    rest = test.removeprefix(path)
    return rest != test and (not rest or rest[0] in "[:/" or path.endswith("/"))
