"""The order of tests, and which of them are quick."""

import pytest

from tests import durations


class Item:
    """As much of a test as the order needs."""

    def __init__(self, nodeid: str, group: str = "", slow: bool = False, fixtures: tuple[str, ...] = ()) -> None:
        self.nodeid = nodeid
        self.fixturenames = fixtures
        self.marks = {"xdist_group": pytest.mark.xdist_group(group).mark} if group else {}
        if slow:
            self.marks["slow"] = pytest.mark.slow.mark

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)


def names(items):
    return [item.nodeid for item in items]


def test_groups_come_first_then_the_longest_and_a_line_keeps_its_order():
    items = [
        Item("b"),
        Item("first@servers", "servers"),
        Item("long"),
        Item("second@servers", "servers"),
        Item("last@x", "x"),
    ]
    seconds = {"long": 5.0, "b": 6.0, "first": 1.0, "second": 7.0}
    assert names(durations.in_order(items, seconds)) == ["first@servers", "second@servers", "last@x", "b", "long"]


def test_short_tests_are_spread_among_long_ones_and_files_take_turns():
    items = [Item(f"{file}.py::{number}") for file in "ab" for number in range(3)]
    long = [Item(f"long.py::{number}") for number in range(3)]
    ordered = names(durations.in_order([*items, *long], {f"long.py::{number}": 9.0 - number for number in range(3)}))
    assert [name for name in ordered if "long" in name] == names(long)
    assert [ordered.index(name) for name in names(long)] == [1, 4, 7]
    short = [name for name in ordered if "long" not in name]
    assert sorted(short) == sorted(names(items)) and short[0][0] != short[1][0] == short[3][0]
    assert [name for name in short if name[0] == "a"] == names(items)[:3]


def test_what_is_quick_is_short_and_starts_no_other_program():
    assert durations.is_quick(Item("a"), {"b": 1.0})
    for item in (Item("b"), Item("a", group="real"), Item("a", slow=True), Item("a", fixtures=("java",))):
        assert not durations.is_quick(item, {"b": 1.0})


def test_a_group_is_no_part_of_a_name_and_a_parameter_is():
    assert durations.name_of("tests/a.py::b[c@d]@servers") == "tests/a.py::b[c@d]"
    assert durations.name_of("tests/a.py::b[c@d]") == "tests/a.py::b[c@d]"


def test_what_takes_long_is_written_down_and_read_again(tmp_path):
    watch = durations.Stopwatch(tmp_path / "durations.txt")
    for name, took in (("tests/a.py::b[c d]", 0.4), ("tests/a.py::b[c d]", 0.3), ("tests/a.py::short", 0.1)):
        report = pytest.TestReport(name, ("", 0, ""), {}, "passed", None, "call", duration=took)
        watch.pytest_runtest_logreport(report)
    watch.pytest_sessionfinish()
    assert durations.table(watch.path) == {"tests/a.py::b[c d]": 0.7}
    assert durations.table(tmp_path / "none.txt") == {}


def test_every_line_of_the_table_is_a_time_and_a_test():
    assert all(took > 0 and name.startswith("tests/") for name, took in durations.table().items())
