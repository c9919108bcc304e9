"""A Spark session on any engine: in this process, on a cluster (standalone, YARN, Kubernetes), by a Connect server.

A session on this machine alone stays on the loopback interface. A cluster elsewhere must reach the driver: there Spark
chooses the driver's address, by the host's name, unless a setting says otherwise.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from ..core.errors import BadInput, MissingExtra, Unreachable
from . import class_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MEMORY = "4g"
LOOPBACK = "127.0.0.1"


MASTERS = "local[N], spark://HOST:PORT, yarn, k8s://HOST:PORT or sc://HOST:PORT"


def open_session(master: str = "local[*]", app: str = "pluribus", **settings: Any) -> SparkSession:
    """A session on ``local[N]``, ``spark://HOST:PORT``, ``yarn``, ``k8s://HOST:PORT`` or ``sc://HOST:PORT``; if one is
    open in this process, that one. ``format("pluribus")`` is registered in it.

    Settings are Spark's own, with ``_`` for each dot if they have none, and over ours. On ``local`` and on a cluster at
    a loopback address everything stays on the loopback interface; no port for browsers is opened unless a setting says
    so. Raises ``MissingExtra`` without pyspark or Java, ``Unreachable`` if nobody answers there.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("Spark is not installed: pip install 'pluribus[spark]'") from None
    wanted = {name if "." in name else name.replace("_", "."): str(value) for name, value in settings.items()}
    if master.startswith("sc://"):
        builder = SparkSession.builder.remote(master)
    elif master == "yarn" or master.startswith(("local", "spark://", "k8s://")):
        _need_java()
        builder = SparkSession.builder.master(master)
        wanted = {**defaults(master), **wanted}
    else:
        raise BadInput(f"there is no engine {master!r}: use {MASTERS}")
    if is_here(master):
        # Executors must import what the driver imports. Elsewhere Python is where that machine or image has it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    try:
        with _interrupts_kept(), _deaf_children(), class_archive.in_use():
            opened = builder.appName(app).getOrCreate()
        _quieten_accumulators()
        _register(opened)
        return opened
    except (PySparkException, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        if said := last_words():
            reason = f"{reason} Java said: {said}"
        raise Unreachable(f"no Spark session at {master}: {reason}; start the engine there") from None


@contextmanager
def session(master: str = "local[*]", app: str = "pluribus", **settings: Any) -> Iterator[SparkSession]:
    """As ``open_session``; stopped in the end, unless it was there before."""
    active = _active()
    opened = open_session(master, app, **settings)
    try:
        yield opened
    finally:
        if active is None:
            with suppress(ConnectionError, *_gone()), logging_nothing():  # of tasks that were interrupted, and end now
                opened.stop()


def _gone() -> tuple[type[Exception], ...]:
    """What a Java machine that has died raises: the reason was told already."""
    try:
        from py4j.protocol import Py4JNetworkError
    except ImportError:  # through Connect alone
        return ()
    return (Py4JNetworkError,)


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Spark puts a handler of its own on Ctrl-C, which outlives the session; it stays as it was."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _quieten_accumulators() -> None:
    """Java may close its connection for accumulators at any time, also in good order; PySpark prints that as an error
    with its stack."""
    from pyspark import SparkContext

    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)  # none through Connect
    if server is not None and "handle_error" not in vars(server):
        print_error = server.handle_error

        def unless_closed(request: Any, address: Any) -> None:
            if not isinstance(sys.exception(), (EOFError, ConnectionError)):
                print_error(request, address)

        server.handle_error = unless_closed


@contextmanager
def logging_nothing() -> Iterator[None]:
    """Java logs nothing meanwhile, if this process has one: for what is interrupted on purpose."""
    from pyspark import SparkContext

    if SparkContext._gateway is None:  # through a Connect server
        yield
        return
    log4j = SparkContext._gateway.jvm.org.apache.logging.log4j
    before = log4j.LogManager.getRootLogger().getLevel()
    log4j.core.config.Configurator.setRootLevel(log4j.Level.OFF)
    try:
        yield
    finally:
        log4j.core.config.Configurator.setRootLevel(before)


_starting = threading.local()
_said: deque[str] = deque(maxlen=40)
"""The last lines that Java wrote to its standard error."""
_listeners: deque[threading.Thread] = deque(maxlen=1)
LISTEN_S = 1.0
NOISE = ("WARNING:", "NOTE: Picked up", "Using Spark's default log4j", "Setting default log level", "To adjust logging")
VERBOSE = "PLURIBUS_SPARK_VERBOSE"
"""Set in the environment, Spark's own words while Java starts are not kept from standard error."""


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Java, if it is started meanwhile, is deaf to a polite kill of the whole process group, such as systemd's: who
    stops the queries needs it until they are stopped. It ends with this process, which closes its standard input
    then."""
    _hook()
    heard, _starting.errors = os.pipe()
    listener = threading.Thread(target=_listen, args=(heard,), name="java-errors", daemon=True)
    listener.start()
    _listeners.append(listener)
    _starting.java = True
    try:
        yield
    finally:
        _starting.java = False
        os.close(_starting.errors)


def _listen(heard: int) -> None:
    """Keep the last lines, until Java ends; if none was started, that is at once."""
    with open(heard, errors="replace") as lines:
        for line in lines:
            if line.strip() and not line.startswith("\tat "):
                _said.append(line.strip())


def last_words() -> str:
    """What Java said last on its standard error, for the error of one that has died; empty if it said nothing."""
    for listener in _listeners:
        listener.join(LISTEN_S)  # until it has heard the end
    told = [line for line in _said if not line.startswith(NOISE) and " WARN " not in line][-8:]
    return " | ".join(told)[-900:]


@cache
def _hook() -> None:
    os.register_at_fork(after_in_child=_be_deaf)


def _be_deaf() -> None:
    """In a child, before it becomes Java: what is ignored stays ignored, and what it says is for ``last_words``."""
    if getattr(_starting, "java", False):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not os.environ.get(VERBOSE):
            os.dup2(_starting.errors, 2)


def _active() -> Any:
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def is_here(master: str) -> bool:
    """True if an engine is on this machine alone: in this process, or at a loopback address."""
    if master.startswith("local"):
        return True
    scheme, _, rest = master.partition("://")
    hosts = [part.rpartition(":")[0].strip("[]") or part for part in rest.partition("/")[0].split(",")]
    return scheme in ("spark", "sc") and all(_is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def defaults(master: str) -> dict[str, str]:
    """Our settings for an engine; settings of the caller override them."""
    found = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Standing queries take turns (``jobs.py``): a long task of one does not hold back all tasks of the others.
        "spark.scheduler.mode": "FAIR",
    }
    if is_here(master):
        found["spark.driver.host"] = found["spark.driver.bindAddress"] = LOOPBACK
        # Workers are forked with Pluribus loaded: several start with every micro-batch. Elsewhere that depends on what
        # the machines or the image have.
        found["spark.python.daemon.module"] = "pluribus.pipeline.daemon"
        # The default of 200 makes every micro-batch start 200 tasks; what one machine needs is a few a core. On a
        # cluster Spark's own default stays, and adaptive execution, or a setting.
        found["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    if master.startswith("local"):
        found["spark.driver.memory"] = os.environ.get("PLURIBUS_SPARK_MEMORY", LOCAL_MEMORY)
    return found


def _register(spark: SparkSession) -> None:
    from .source import register

    register(spark)


def _need_java() -> None:
    if class_archive.java() is None:
        raise MissingExtra(
            "Spark needs Java 17 or newer: install it, e.g. 'apt-get install openjdk-17-jre-headless' as root, "
            "or set JAVA_HOME"
        )
