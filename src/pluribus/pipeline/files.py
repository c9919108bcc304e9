"""Files of a folder that may lie anywhere: on a local disk, or where Spark's Hadoop client reaches.

A path without a scheme is local and is handled by Python. A URI (``hdfs://``, ``s3a://``, ``file://``, …) is handed to
the Hadoop client of the driver's Java machine, as Spark itself does it; that needs a session with a Java machine of its
own, so not one through a Connect server. ``write`` and ``move`` are atomic for readers: a file is there whole, or not
at all. (On object stores a move is a copy, as the Hadoop client does it.)
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from ..core.errors import BadInput

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class Found(NamedTuple):
    path: str
    """Below the folder, with slashes."""
    size_bytes: int
    changed_ms: int = 0


class Files(Protocol):
    """The files of one folder; names are relative to it."""

    root: str

    def under(self, name: str) -> str:
        """The whole path or URI, as Spark takes it."""
        ...

    def list(self, name: str = "") -> list[Found]:
        """All files below, at any depth; none if there is no such folder."""
        ...

    def exists(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None:
        """Write a file, replacing an old one. Local files are on disk when it returns."""
        ...

    def move(self, name: str, to: str) -> None:
        """A file, in the place of what was there."""
        ...

    def remove(self, name: str) -> None:
        """A file or a whole folder; nothing if it is not there."""
        ...


def is_local(where: str) -> bool:
    """True if a path is on a disk of this machine."""
    return SCHEME.match(where) is None


def local_path(where: str) -> Path | None:
    """The path of a local folder, also of a ``file:`` URI; None if it is not local."""
    if is_local(where):
        return Path(where)
    parts = urlsplit(where)
    return Path(unquote(parts.path)) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None


def files_of(where: str, spark: Any = None) -> Files:
    """The folder, by its path or URI. Without a session only folders of this machine can be opened."""
    if is_local(where):
        return LocalFiles(where)
    if spark is not None and getattr(spark, "_jvm", None) is not None:
        return HadoopFiles(where, spark)
    path = local_path(where)
    if path is None:
        raise BadInput(
            f"{where} is reached by Spark's Hadoop client, which this process does not have: use a session on "
            "local[N] or on a cluster"
        )
    return LocalFiles(str(path))


class LocalFiles:
    """On a disk of this machine."""

    def __init__(self, root: str) -> None:
        self.root = str(Path(root).absolute())
        self._root = Path(self.root)

    def under(self, name: str) -> str:
        return str(self._root / name) if name else self.root

    def list(self, name: str = "") -> list[Found]:
        return sorted(self._walk(self._root / name if name else self._root))

    def _walk(self, folder: Path) -> Iterator[Found]:
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(Path(entry.path))
            else:
                try:
                    about = entry.stat()
                    below = Path(entry.path).relative_to(self._root).as_posix()
                    yield Found(below, about.st_size, about.st_mtime_ns // 1_000_000)
                except FileNotFoundError:
                    continue  # removed meanwhile

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        try:
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError:  # the disk is full, for example: an unfinished file would use space
            beside.unlink(missing_ok=True)
            raise
        _synced(path.parent)

    def move(self, name: str, to: str) -> None:
        path = self._root / to
        path.parent.mkdir(parents=True, exist_ok=True)
        (self._root / name).replace(path)

    def remove(self, name: str) -> None:
        path = self._root / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _synced(folder: Path) -> None:
    """A new name in a folder is on disk when the folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class HadoopFiles:
    """Where the driver's Hadoop client reaches."""

    def __init__(self, root: str, spark: Any) -> None:
        self.root = root.rstrip("/")
        self._jvm = spark._jvm
        self._base = self._path("")
        self._configuration = spark._jsc.hadoopConfiguration()
        self._system = self._base.getFileSystem(self._configuration)
        self._gateway = spark._sc._gateway
        self._length = len(self._system.makeQualified(self._base).toUri().getPath())

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.under(name))

    def under(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def list(self, name: str = "") -> list[Found]:
        path = self._path(name)
        if not self._system.exists(path):
            return []
        found, files = [], self._system.listFiles(path, True)
        while files.hasNext():
            status = files.next()
            below = status.getPath().toUri().getPath()[self._length :].lstrip("/")
            found.append(Found(below, status.getLen(), status.getModificationTime()))
        return sorted(found)

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._path(name)))

    def read(self, name: str) -> bytes:
        stream = self._system.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        beside = f"{name.rpartition('/')[0] or '.'}/.{uuid.uuid4().hex[:12]}".removeprefix("./")
        stream = self._system.create(self._path(beside), True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        self.move(beside, name)

    def move(self, name: str, to: str) -> None:
        source, target = self._path(name), self._path(to)
        self._system.mkdirs(target.getParent())
        if self._system.exists(target):
            if self._replaced(source, target):
                return
            self._system.delete(target, False)
        if not self._system.rename(source, target):
            raise OSError(f"{self.under(name)} could not be moved to {self.under(to)}: look at the store's own log")

    def _replaced(self, source: Any, target: Any) -> bool:
        """Put a file into the place of another in one step, so that a driver that is killed meanwhile leaves the old
        one or the new one; false where the store's client cannot do that."""
        from py4j.protocol import Py4JJavaError

        hadoop = self._jvm.org.apache.hadoop.fs
        over = self._gateway.new_array(hadoop.Options.Rename, 1)
        over[0] = hadoop.Options.Rename.OVERWRITE
        try:
            context = hadoop.FileContext.getFileContext(self._base.toUri(), self._configuration)
        except Py4JJavaError:
            return False
        context.rename(self._system.makeQualified(source), self._system.makeQualified(target), over)
        return True

    def remove(self, name: str) -> None:
        self._system.delete(self._path(name), True)
