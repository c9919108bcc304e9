"""What Spark's file sink has committed to a folder, as it wrote it down in ``_spark_metadata``.

Every micro-batch has a file of lines, each a file that it added. Every tenth or so is ``N.compact`` and holds all lines
up to it. A driver that is killed leaves files that no line names.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from ..core.errors import BadInput
from .files import Files

MANIFEST, MANIFEST_VERSION, COMPACT = "_spark_metadata", "v1", ".compact"


class Manifest(NamedTuple):
    files: list[PurePosixPath]
    last: int
    """The number of the last micro-batch; -1 if there was none."""


class _Line(msgspec.Struct):
    """A file, by its URI."""

    path: str
    action: str = "add"


_line = msgspec.json.Decoder(_Line)


def manifest_of(folder: Files) -> Manifest | None:
    """The files that count; None if Spark's file sink did not write here."""
    if not folder.exists(MANIFEST):
        return None
    names = [found.path.rpartition("/")[2] for found in folder.list(MANIFEST)]
    batches = {int(name.removesuffix(COMPACT)): name for name in names if _numbered(name.removesuffix(COMPACT), name)}
    first = max(batches, default=-1)
    later = {int(name): name for name in names if name.isdigit() and int(name) > first}
    chosen = [*([batches[first]] if batches else []), *(later[number] for number in sorted(later))]
    last = max(later, default=first)
    missing = set(range(first + 1, last + 1)) - later.keys()
    if missing:
        raise BadInput(
            f"the manifest {folder.under(MANIFEST)} lacks its part {min(missing)}: copy the archive again, whole"
        )
    found: dict[PurePosixPath, None] = {}
    for name in chosen:
        file = folder.under(f"{MANIFEST}/{name}")
        version, *lines = folder.read(f"{MANIFEST}/{name}").decode().splitlines() or [""]
        if version != MANIFEST_VERSION:
            raise BadInput(f"{file} is a manifest of version {version[:20]!r}: this release reads {MANIFEST_VERSION}")
        for line in lines:
            try:
                entry = _line.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise BadInput(f"{file} is no manifest of Spark ({error}): copy the archive again, whole") from None
            path = PurePosixPath(unquote(urlsplit(entry.path).path))
            if entry.action == "delete":
                found.pop(path, None)
            else:
                found[path] = None
    return Manifest(list(found), last)


def _numbered(stem: str, name: str) -> bool:
    return stem.isdigit() and name.endswith(COMPACT)
