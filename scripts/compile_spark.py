"""Puts compiled modules into the archives from which Spark's Python workers import PySpark (`python/lib/*.zip`).

PySpark comes with its sources alone in there. Python keeps no compiled modules for what it imports from an archive, so
each worker would compile some hundred modules when it starts, which is half of its work until then. Set-up runs this on
its own environment. Another version of Python than this one ignores what is compiled, and takes the sources.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import sys
import warnings
import zipfile
from pathlib import Path

UNCHECKED = (1).to_bytes(4, "little")
"""The flags of a compiled module whose source is not looked at: both are in one archive, which nobody edits."""


def add_compiled(archive: Path) -> int:
    """How many modules were compiled; none if the archive has compiled ones already."""
    with zipfile.ZipFile(archive) as old:
        names = set(old.namelist())
        wanted = [name for name in names if name.endswith(".py") and "/tests/" not in name and f"{name}c" not in names]
        if not wanted:
            return 0
        beside = archive.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(beside, "w") as new:
            for entry in old.infolist():
                source = old.read(entry)
                new.writestr(entry, source)
                if entry.filename in wanted:
                    new.writestr(f"{entry.filename}c", compiled(source, f"{archive}/{entry.filename}"))
    os.replace(beside, archive)
    return len(wanted)


def compiled(source: bytes, name: str) -> bytes:
    with warnings.catch_warnings(action="ignore"):  # of others' sources
        code = compile(source, name, "exec", dont_inherit=True)
    return b"".join((importlib.util.MAGIC_NUMBER, UNCHECKED, importlib.util.source_hash(source), marshal.dumps(code)))


def archives() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations or [] if spec is not None else []
    return [archive for folder in folders for archive in sorted(Path(folder, "python", "lib").glob("*.zip"))]


if __name__ == "__main__":
    for each in archives():
        try:
            add_compiled(each)
        except (OSError, SyntaxError, zipfile.BadZipFile) as error:
            sys.exit(f"{each}: {error}")
