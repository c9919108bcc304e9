"""The check that promises are shown can itself fail."""

import pytest

from tests import features


@pytest.fixture
def table(monkeypatch):
    def of(test_cell, module="`src/pluribus/x.py`"):
        row = features.Feature("B1", "a promise", module, "`pluribus x`", test_cell)
        monkeypatch.setattr(features, "feature_table", lambda: [row])

    return of


@pytest.mark.parametrize(
    "path", ["tests/x/test_y.py", "tests/x/", "tests/x/test_y.py::test_z", "tests/x/test_y.py::test_z[1]"]
)
def test_a_named_test_that_passed_shows_the_promise(table, path):
    table(f"`{path}`")
    assert features.promises_not_shown({"tests/x/test_y.py::test_z[1]"}, set()) == []
    assert features.promises_not_shown(set(), {"tests/x/test_y.py::test_z[1]"}) == []


@pytest.mark.parametrize(
    "path", ["tests/x/test_yy.py", "tests/x/test_y", "tests/x/test_y.py::test_zz", "tests/x/test_y.py::test"]
)
def test_a_named_test_that_did_not_pass_is_reported(table, path):
    table(f"`tests/other.py`, `{path}`")
    answer = features.promises_not_shown({"tests/x/test_y.py::test_z[1]", "tests/other.py::test_it"}, set())
    assert answer == [f"B1 names {path}, which did not run and pass"]


def test_a_planned_row_promises_nothing(table):
    table("`tests/x.py`", module="planned")
    assert features.promises_not_shown(set(), set()) == []
