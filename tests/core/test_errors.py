"""The tree that the docstring draws is the tree that the classes make."""

import inspect
import re

import pytest

from pluribus.core import errors
from pluribus.core.errors import PluribusError


def drawn() -> dict[str, str]:
    """Each name of the drawing with the name that it hangs from."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^    ((?:[│ ]   )*(?:[├└]── )?)(\w+) {2,}\S", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        path[depth:] = [match[2]]
        parents[match[2]] = path[depth - 1] if depth else ""
    return parents


def real() -> dict[str, str]:
    classes = [
        found
        for found in vars(errors).values()
        if inspect.isclass(found) and issubclass(found, Exception) and found.__module__ == errors.__name__
    ]
    parents = {}
    for found in classes:
        ours = [base.__name__ for base in found.__bases__ if issubclass(base, PluribusError)]
        assert len(ours) <= 1, f"{found.__name__} hangs from two branches"
        parents[found.__name__] = ours[0] if ours else ""
    return parents


def test_the_drawing_is_the_tree():
    assert drawn() == real()
    assert list(drawn()) == list(real()), "the classes come in another order than they are drawn"


@pytest.mark.parametrize(
    ("ours", "builtin"), [("BadInput", ValueError), ("Unavailable", OSError), ("Closed", ConnectionError)]
)
def test_an_error_is_also_the_builtin_that_the_drawing_names(ours: str, builtin: type[Exception]):
    line = next(line for line in (errors.__doc__ or "").splitlines() if f" {ours} " in line)
    assert f"also a {builtin.__name__}" in line or f"also an {builtin.__name__}" in line
    assert issubclass(getattr(errors, ours), builtin)


def test_every_error_keeps_its_sentence():
    for name in real():
        assert str(getattr(errors, name)("one sentence")) == "one sentence"
