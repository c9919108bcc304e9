"""The configuration of a backbone: a file of TOML, read and checked whole before Spark starts.

::

    name = "dealing"                      of this backbone: a level of its topics, and its writers
    url = "client://127.0.0.1:47901/dealing"
    state = "dealing.state"               checkpoints, report; a folder or a URI that Spark's Hadoop client takes
    tables = "dealing.tables"             bronze, silver, dead and gold, as Parquet

    [[silver]]                            a table of events of one kind, from topics that no other one has
    [[silver.rules]]                      what is expected of each of them
    [[enrich]]                            a silver table (or several) with columns of another table or topic beside it
    [[gold]]                              a standing answer: windows, last, top, anomalies, pattern, where
    [tiers]                               how often tables are written, when files are compacted

Every error names the file, the line, and the remedy: ``dealing.toml line 14, silver 'ticks', rule 'a price': …``.
What can be known without Spark is checked here: topics, types of fields, conditions, columns that are computed with,
patterns, and whether the backbone would read what it writes.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import msgspec

from ...core.errors import BadInput
from .checks import Checks
from .parts import Configuration
from .places import TomlPlaces, keys_of


def load(path: str | Path, url: str = "") -> Configuration:
    """Read and check a configuration. ``url`` stands for the one in the file; relative folders are below the file's.
    Raises ``BadInput`` with file, line, place and remedy."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read ({error}): name a configuration of a backbone") from None
    where = TomlPlaces(path, text)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is no TOML: {error}; correct it there") from None
    try:
        found = msgspec.convert(document, Configuration)
    except msgspec.ValidationError as error:
        said, _, at = str(error).partition(" - at `")
        raise where.error(keys_of(at.rstrip("`")), f"{said}; docs/backbone.md has all keys") from None
    found.url = url or found.url or os.environ.get("PLURIBUS_URL", "")
    for name in ("state", "tables"):
        given = getattr(found, name)
        setattr(found, name, given if is_uri(given) else str((path.parent / given).absolute()))
    for step in found.enrich:
        if step.table and not is_uri(step.table):
            step.table = str((path.parent / step.table).absolute())
    Checks(found, where).all()
    return found


def is_uri(text: str) -> bool:
    """True if the text has a scheme; else it is a local path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text) is not None
