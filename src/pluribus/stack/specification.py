"""A stack as text: ``transport | drop(p=0.1) | presence | window | groups``, bottom first, as a stack is built.

Layers register themselves in ``layers.catalogue`` and ``group``; a user's own layer joins by ``catalogue[name] =
class``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from ..core.errors import BadStack
from .layer import Layer

Catalogue = Mapping[str, Callable[..., Layer]]

_LAYER = re.compile(r"^(?P<name>[a-z_]+)(?:\((?P<options>.*)\))?$")


def build(text: str, catalogue: Catalogue) -> list[Layer]:
    """The layers that a specification names, or ``BadStack`` that says which part is wrong."""
    return [_build_one(part.strip(), catalogue) for part in _split(text)]


def _split(text: str) -> list[str]:
    parts = text.split("|")
    if not all(part.strip() for part in parts):
        raise BadStack(f"the stack {text!r} has an empty place: write names with | between them")
    return parts


def _build_one(part: str, catalogue: Catalogue) -> Layer:
    match = _LAYER.match(part)
    if match is None:
        raise BadStack(f"{part!r} is no layer: write name or name(option=value)")
    name = match["name"]
    if name not in catalogue:
        raise BadStack(f"there is no layer {name!r}: use {', '.join(sorted(catalogue))}")
    options = _options(match["options"] or "", part)
    try:
        return catalogue[name](**options)
    except TypeError as error:
        raise BadStack(f"{part!r} does not fit the layer {name}: {error}") from None


def _options(text: str, part: str) -> dict[str, object]:
    """Keyword arguments with literal values; parsed as Python, never evaluated."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        raise BadStack(f"the options of {part!r} do not read: write name=value with numbers, strings or True") from None
