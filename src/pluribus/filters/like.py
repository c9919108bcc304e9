"""LIKE patterns: ``%`` is any text, ``_`` any one character, the escape character takes the meaning from the next.

A pattern becomes pieces: texts, ``ANY`` and ``ONE``. From pieces every target makes its own: Python a regular
expression (with groups that never look back, so that no pattern takes more than one pass for each piece), SQLite a
GLOB (its LIKE ignores case), PostgreSQL and Spark a LIKE with a backslash for escape.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache

PATTERNS_REMEMBERED_MAX = 4_096


class Wild(Enum):
    ANY = "%"
    ONE = "_"


Pieces = tuple[str | Wild, ...]


def pieces_of(pattern: str, escape: str = "") -> Pieces:
    """Raises ``ValueError`` if the escape character stands before anything but ``%``, ``_`` and itself."""
    pieces: list[str | Wild] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            character = next(characters, "")
            if character not in ("%", "_", escape):
                raise ValueError(f"{escape!r} escapes %, _ and itself, not {character or 'the end'!r}")
        elif character == "%":
            if not pieces or pieces[-1] is not Wild.ANY:
                pieces.append(Wild.ANY)
            continue
        elif character == "_":
            pieces.append(Wild.ONE)
            continue
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += character
        else:
            pieces.append(character)
    return tuple(pieces)


def fixed_prefix(pieces: Pieces) -> str:
    return pieces[0] if pieces and isinstance(pieces[0], str) else ""


@lru_cache(PATTERNS_REMEMBERED_MAX)
def matcher(pieces: Pieces) -> Callable[[str], object]:
    """A function that gives something true exactly for the texts that match as a whole."""
    match pieces:
        case ():
            return lambda text: not text
        case (str(whole),):
            return whole.__eq__
        case (Wild.ANY,):
            return lambda text: True
        case (str(start), Wild.ANY):
            return lambda text: text.startswith(start)
        case (Wild.ANY, str(end)):
            return lambda text: text.endswith(end)
        case (Wild.ANY, str(middle), Wild.ANY):
            return lambda text: middle in text
    return re.compile(_expression(pieces), re.DOTALL).fullmatch


def _expression(pieces: Pieces) -> str:
    """Each run of fixed length between two ``%`` is taken at its first place; that never spoils a later one."""
    runs = [""]
    for piece in pieces:
        if piece is Wild.ANY:
            runs.append("")
        else:
            runs[-1] += "." if piece is Wild.ONE else re.escape(str(piece.value if isinstance(piece, Wild) else piece))
    if len(runs) == 1:
        return runs[0]
    first, *between, last = runs
    return first + "".join(f"(?>.*?{run})" for run in between) + ".*" + last


def as_like(pieces: Pieces) -> str:
    """With a backslash for escape, as PostgreSQL and Spark have it by default."""
    return "".join(piece.value if isinstance(piece, Wild) else re.sub(r"([\\%_])", r"\\\1", piece) for piece in pieces)


def as_glob(pieces: Pieces) -> str:
    glob = {Wild.ANY: "*", Wild.ONE: "?"}
    return "".join(glob[piece] if isinstance(piece, Wild) else re.sub(r"([*?\[])", r"[\1]", piece) for piece in pieces)
