"""``docs/urls.md`` names every option and every sentence with which a URL, an opening or a send is refused."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pluribus.core import errors
from pluribus.core.url import SCHEMES

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "pluribus"
SOURCES = [PACKAGE / "core" / "url.py", *sorted((PACKAGE / "engines").glob("*.py"))]
PAGE = " ".join((ROOT / "docs" / "urls.md").read_text(encoding="utf-8").split())


def sentence_of(node: ast.expr) -> str | None:
    """The text with … for every value in it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
    return None


def sentences() -> Iterator[tuple[str, str]]:
    """The exception and the sentence of every place that makes one, except those that are only counted."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[argument]) if name != "MalformedFrame" and hasattr(
                    errors, name
                ):
                    if sentence := sentence_of(argument):
                        yield name, re.sub(r"…+", "…", sentence).replace("`", "'")


@pytest.mark.parametrize(("name", "sentence"), sorted(set(sentences())))
def test_a_sentence_is_documented(name: str, sentence: str) -> None:
    assert f"`{sentence}` | `{name}`" in PAGE, f"add to docs/urls.md: | `{sentence}` | `{name}` |"


def options() -> set[str]:
    named = r'options\.pop\(\s*"(\w+)"'
    return {name for source in SOURCES for name in re.findall(named, source.read_text(encoding="utf-8"))} | {
        "cert",
        "key",
    }


@pytest.mark.parametrize("option", sorted(options()))
def test_an_option_is_documented(option: str) -> None:
    assert f"`{option}=" in PAGE


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_is_documented(scheme: str) -> None:
    assert f"{scheme}://" in PAGE
