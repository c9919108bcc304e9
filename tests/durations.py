"""How long tests take: the order in which they are run, and which of them are no part of ``make quick``.

``tests/durations.txt`` names each test that took ``LISTED_S`` or more when all were last measured: seconds, then the
test's id. ``make test TESTS="--promises --write-durations"`` writes it anew. A test that it does not name counts as
short; a name that is no test's any more does no harm.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from zlib import crc32

import pytest

TABLE = Path(__file__).with_name("durations.txt")
LISTED_S = 0.5
NOT_QUICK = ("bench", "console", "pipeline", "real")
"""Folders of tests that start other programs: what they need is measured in seconds."""
LANES = 8
"""Files whose short tests are run by turns."""
PROGRAMS = ("java", "nats_server", "postgres_server")
"""Fixtures that start, or are about, programs of others."""


def table(path: Path = TABLE) -> dict[str, float]:
    """Seconds by the test's id."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {test: float(seconds) for seconds, test in (line.split(maxsplit=1) for line in lines)}


def name_of(nodeid: str) -> str:
    """A test's id without the group that xdist appends."""
    name, at, group = nodeid.rpartition("@")
    return name if at and "]" not in group else nodeid


def line_of(item: pytest.Item) -> str:
    """What runs in one worker, one test after the other: a group of tests, or a test alone."""
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else name_of(item.nodeid)


def in_order(items: Iterable[pytest.Item], seconds: dict[str, float]) -> list[pytest.Item]:
    """In the order in which workers take them: groups first, then the longest test, with short ones spread evenly among
    the long ones. Many short tests mostly wait; left for the end, they would leave the cores idle."""
    items = list(items)
    lines: Counter[str] = Counter()
    for item in items:
        lines[line_of(item)] += seconds.get(name_of(item.nodeid), 0)
    first: dict[str, int] = {}
    for at, item in enumerate(items):
        first.setdefault(line_of(item), at)
    grouped, single = [], []
    for item in sorted(items, key=lambda item: (-lines[line_of(item)], first[line_of(item)])):
        (grouped if item.get_closest_marker("xdist_group") else single).append(item)
    long = [item for item in single if lines[line_of(item)]]
    short = mixed(item for item in single if not lines[line_of(item)])
    placed = [((at + 1) / len(long), item) for at, item in enumerate(long)]
    placed += [((at + 1) / len(short), item) for at, item in enumerate(short)]
    return grouped + [item for _, item in sorted(placed, key=lambda one: one[0])]


def mixed(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Tests of several files by turns: those of one file are alike, and four that wait would leave the cores idle."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    lanes: list[list[pytest.Item]] = [[] for _ in range(LANES)]
    for file in sorted(files, key=lambda file: crc32(file.encode())):
        min(lanes, key=len).extend(files[file])
    return [item for turn in zip_longest(*lanes) for item in turn if item is not None]


def is_quick(item: pytest.Item, seconds: dict[str, float]) -> bool:
    """Whether a developer wants it every few minutes: short, and with no program but this one."""
    if name_of(item.nodeid) in seconds or item.get_closest_marker("slow") or item.get_closest_marker("xdist_group"):
        return False
    return not set(PROGRAMS) & set(getattr(item, "fixturenames", ()))


class Stopwatch:
    """Measures a whole run, and writes the table."""

    def __init__(self, path: Path = TABLE) -> None:
        self.path = path
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[name_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        listed = sorted((test, took) for test, took in self.seconds.items() if took >= LISTED_S)
        self.path.write_text("".join(f"{took:.1f} {test}\n" for test, took in listed), encoding="utf-8")
