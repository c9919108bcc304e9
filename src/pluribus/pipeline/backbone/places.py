"""Places in a file of TOML: the line of a key, for the words of an error.

TOML is parsed without places, so they are searched in the text: the nth header of an array of tables, and the key
behind it, in that table and not in the next one. Of a key that is missing it is the line of its table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ...core.errors import BadInput

Keys = Sequence[str | int]
"""The way to a value, as ``["silver", 0, "rules", 1, "where"]``."""


class TomlPlaces:
    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = [line.strip() for line in text.splitlines()]

    def error(self, keys: Keys, said: str, told: str = "") -> BadInput:
        line = self.line(keys)
        return BadInput(f"{self._path} line {line}{', ' if told else ''}{told}: {said}")

    def line(self, keys: Keys) -> int:
        """The line of the last of these keys that is found."""
        at, header = 0, ""
        for place, key in enumerate(keys):
            if isinstance(key, int):
                continue
            name = f"{header}.{key}" if header else key
            number = keys[place + 1] if place + 1 < len(keys) else None
            if isinstance(number, int):
                found = self._nth(f"[[{name}]]", number, at)
            else:
                found = self._header_or_key(header, name, key, at)
            if found is None:
                break
            at, header = found, name
        return at + 1

    def _nth(self, header: str, number: int, begin: int) -> int | None:
        places = [at for at, line in enumerate(self._lines) if at >= begin and line.startswith(header)]
        return places[number] if number < len(places) else None

    def _header_or_key(self, table: str, name: str, key: str, begin: int) -> int | None:
        wanted = re.compile(rf"\[{re.escape(name)}\]|\"?{re.escape(key)}\"?\s*=")
        below = re.compile(rf"\[\[?{re.escape(table)}\.")
        for at, line in enumerate(self._lines[begin:], begin):
            if wanted.match(line):
                return at
            if table and at > begin and line.startswith("[") and not below.match(line):
                return None  # the table ends here
        return None


def keys_of(path: str) -> list[str | int]:
    """Of ``$.silver[0].rules[1].where``."""
    return [int(one) if one.isdigit() else one for one in re.findall(r"\w+", path.removeprefix("$"))]
