"""The daemon from which Spark forks its Python workers, with Pluribus loaded before the first fork.

A standing query starts several workers for every micro-batch (one plans the write, one commits it), each a fork of a
daemon. Loaded here once, the imports cost them nothing. ``session.py`` names this module to Spark
(``spark.python.daemon.module``); it is run as ``python -m pluribus.pipeline.daemon WORKER``, where WORKER is the module
of Spark that workers run.

It ignores SIGTERM, and so do its workers: systemd sends one to all processes of a service at once, and a worker that
ended by it would fail the micro-batch that the driver wants to finish. Spark ends the daemon by closing its standard
input, and the daemon its workers.
"""

import signal
import sys
from types import SimpleNamespace
from typing import Any

import pyarrow  # noqa: F401 - for those who are forked
from pyspark import daemon

from . import source  # noqa: F401

WITH_PANDAS = "pyspark.worker"
"""The workers that run functions over rows; patterns are such functions."""


def _set(number: int, handler: Any) -> Any:
    return signal.signal(number, signal.SIG_IGN if number == signal.SIGTERM else handler)


if __name__ == "__main__":
    daemon.signal = SimpleNamespace(**{**vars(signal), "signal": _set})  # type: ignore[assignment, attr-defined]
    if sys.argv[1:2] == [WITH_PANDAS]:
        import pandas  # noqa: F401

        from . import pattern_workers  # noqa: F401 - a fifth of a second for each that is forked
    daemon.manager()
