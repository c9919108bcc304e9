"""Whether executors see the folders of this machine: on a cluster a path may name another disk on every host.

Spark does not look. Executors would write rows to disks of their own, the driver would find none of them, and a
micro-batch would count that nobody has. So it is tried before anything is written: the driver puts a file into the
folder, and tasks look for it. A URI (``hdfs://``, ``s3a://``) means the same everywhere, and ``local[N]`` has one disk.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import BadInput
from .files import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKS_A_CORE = 2
"""Tasks that look, for each that runs at a time: so every executor has one."""


def check_shared(spark: SparkSession, *places: str) -> None:
    """``BadInput`` if an executor does not see a folder as this process does. Takes a job of Spark on a cluster."""
    context = spark.sparkContext
    folders = {place: path for place in places if (path := local_path(place)) is not None}
    if str(context.master).startswith("local") or not folders:
        return
    marks = {place: _marked(path) for place, path in folders.items()}
    try:
        tasks = LOOKS_A_CORE * context.defaultParallelism
        wanted = {place: str(mark) for place, mark in marks.items()}
        looks = context.parallelize(range(tasks), tasks).map(lambda _: _seen(wanted)).collect()
    finally:
        for mark in marks.values():
            mark.unlink(missing_ok=True)
    for host, missing in looks:
        for place in missing:
            raise BadInput(
                f"{place} is a folder of this machine that executors on {host} do not see: name a folder that all of "
                "them share under this path, or a URI such as s3a:// or hdfs://"
            )


def _marked(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".seen-{uuid.uuid4().hex}"
    mark.touch()
    return mark


def _seen(wanted: dict[str, str]) -> tuple[str, list[str]]:
    """In an executor: its host, and the places whose mark is not there."""
    import socket

    return socket.gethostname(), [place for place, mark in wanted.items() if not Path(mark).exists()]
