"""The progress of standing queries, for people and for monitoring.

``Status`` adds up what Spark tells after each micro-batch: rows, rates, how far behind the log a query is (lag), rows
that came too late, and the size of its state. A job feeds it (``jobs.py``); in any other session ``listener`` does::

    status = Status()
    spark.streams.addListener(listener(status))

It is shown as JSON (``report``), as text for Prometheus (``prometheus``) and as a page (``page``); ``serve`` offers all
three over HTTP, on the loopback interface unless told otherwise, and ``write`` puts the JSON into a file beside the
checkpoint, for ``pluribus pipeline status``.
"""

from __future__ import annotations

import html
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ..core.errors import AddressTaken, BadInput, Unreachable
from .offsets import events_of

RECENT_BATCHES = 20
"""Micro-batches of which rates are the mean."""
QUERIES_MAX = 1_000
"""Queries of which progress is remembered; the one that was silent longest is forgotten first."""
FILE = "status.json"
FETCH_S = 10.0


class _Query:
    def __init__(self) -> None:
        self.batches = 0
        self.rows = 0
        self.late = 0
        self.seconds = 0.0
        self.batch = -1
        self.lag: int | None = None
        self.state_rows = 0
        self.state_bytes = 0
        self.told_at = 0.0
        self.failed = ""
        self.ended = False
        self.recent: deque[tuple[int, float]] = deque(maxlen=RECENT_BATCHES)
        """Rows and seconds of the last micro-batches."""


class Status:
    """May be fed and read from any thread."""

    def __init__(self) -> None:
        self._queries: dict[str, _Query] = {}
        self._lock = threading.Lock()

    def feed(self, name: str, told: Mapping[str, Any]) -> None:
        """One progress of a query, as Spark has it; one that was told before changes nothing."""
        batch = int(told["batchId"])
        sources = told.get("sources", [])
        rows = sum(int(source["numInputRows"]) for source in sources)
        with self._lock:
            query = self._query(name)
            query.told_at = time.time()
            query.ended, query.failed = False, ""  # started again, if it had ended
            query.lag = _lag(sources, query.lag)
            states = told.get("stateOperators", [])
            query.state_rows = sum(int(state.get("numRowsTotal", 0)) for state in states)
            query.state_bytes = sum(int(state.get("memoryUsedBytes", 0)) for state in states)
            if batch <= query.batch or not rows:
                return
            seconds = float(told.get("durationMs", {}).get("triggerExecution", 0)) / 1_000
            query.batch = batch
            query.batches += 1
            query.rows += rows
            query.seconds += seconds
            query.late += sum(int(state.get("numRowsDroppedByWatermark", 0)) for state in states)
            query.recent.append((rows, seconds))

    def end(self, name: str, error: str = "") -> None:
        with self._lock:
            query = self._query(name)
            query.ended, query.failed = True, error

    def _query(self, name: str) -> _Query:
        if name not in self._queries and len(self._queries) >= QUERIES_MAX:
            del self._queries[min(self._queries, key=lambda one: self._queries[one].told_at)]
        return self._queries.setdefault(name, _Query())

    def report(self) -> dict[str, Any]:
        with self._lock:
            return {"time": round(time.time(), 3), "queries": {name: _told(one) for name, one in self._queries.items()}}

    def write(self, path: Path) -> None:
        """Replace the file, so that a reader sees a whole one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(json.dumps(self.report()))
        beside.replace(path)


def _told(query: _Query) -> dict[str, Any]:
    seconds = sum(took for _, took in query.recent)
    state = "failed" if query.failed else "ended" if query.ended else "running"
    return {
        "state": state,
        "batch": query.batch,
        "batches": query.batches,
        "rows": query.rows,
        "seconds": round(query.seconds, 3),
        "rows_a_second": round(sum(rows for rows, _ in query.recent) / seconds, 1) if seconds else 0.0,
        "batch_seconds": round(seconds / len(query.recent), 3) if query.recent else 0.0,
        "lag": query.lag,
        "late": query.late,
        "state_rows": query.state_rows,
        "state_bytes": query.state_bytes,
        "error": query.failed,
    }


def _lag(sources: list[Mapping[str, Any]], before: int | None) -> int | None:
    """Events that are in the logs and not read yet. For a source that does not report its latest offset, the value of
    before."""
    total: int | None = None
    for source in sources:
        latest, end = events_of(_place(source.get("latestOffset"))), events_of(_place(source.get("endOffset")))
        if latest is not None and end is not None:
            total = (total or 0) + max(latest - end, 0)
    return before if total is None else total


def _place(offset: Any) -> Mapping[str, Any] | None:
    """Progress has offsets as text, or as what the text says."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, Mapping):
        return None
    plain = all(isinstance(one, int | Mapping) for one in offset.values())
    return offset if plain else None


def listener(status: Status) -> Any:
    """A ``StreamingQueryListener`` that feeds a status, for ``spark.streams.addListener``; on any engine."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            names[str(event.id)] = event.name or str(event.id)

        def onQueryProgress(self, event: Any) -> None:
            told = json.loads(event.progress.json)
            status.feed(told.get("name") or told["id"], told)

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            lines = str(event.exception or "").splitlines()
            status.end(names.get(str(event.id), str(event.id)), lines[0] if lines else "")

    names: dict[str, str] = {}
    return Listener()


_METRICS = (
    ("rows", "rows_total", "counter", "Rows that a query has read."),
    ("batches", "batches_total", "counter", "Micro-batches that held rows."),
    ("late", "late_rows_total", "counter", "Rows that came too late for their window."),
    ("rows_a_second", "rows_per_second", "gauge", "Rows a second of the last micro-batches."),
    ("batch_seconds", "batch_seconds", "gauge", "Mean time of the last micro-batches."),
    ("lag", "lag_events", "gauge", "Events in the logs that are not read yet."),
    ("state_rows", "state_rows", "gauge", "Rows in the state of a query."),
    ("state_bytes", "state_bytes", "gauge", "Memory that the state of a query uses."),
)


def prometheus(report: Mapping[str, Any]) -> str:
    """A report in the text format of Prometheus."""
    lines: list[str] = []
    for field, name, kind, text in _METRICS:
        lines += [f"# HELP pluribus_pipeline_{name} {text}", f"# TYPE pluribus_pipeline_{name} {kind}"]
        for query, told in report["queries"].items():
            if told[field] is not None:
                lines.append(f'pluribus_pipeline_{name}{{query="{_escaped(query)}"}} {told[field]}')
    lines += ["# HELP pluribus_pipeline_up Whether a query runs.", "# TYPE pluribus_pipeline_up gauge"]
    for query, told in report["queries"].items():
        lines.append(f'pluribus_pipeline_up{{query="{_escaped(query)}"}} {int(told["state"] == "running")}')
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


COLUMNS = ("state", "rows", "rows_a_second", "batch_seconds", "lag", "late", "state_rows", "error")


def page(report: Mapping[str, Any]) -> str:
    """A report as a page that renews itself."""
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in ("query", *COLUMNS))
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td>"
        + "".join(f"<td>{html.escape('' if told[column] is None else str(told[column]))}</td>" for column in COLUMNS)
        + "</tr>"
        for name, told in report["queries"].items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
        "<title>Pluribus pipeline</title><style>body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{padding:.3em .8em;text-align:right;border-bottom:1px solid #ccc}td:first-child,th:first-child"
        f"{{text-align:left}}</style></head><body><h1>Standing queries</h1><table><tr>{head}</tr>{rows}</table>"
        '<p><a href="metrics">metrics</a> <a href="status.json">status.json</a></p></body></html>'
    )


@contextmanager
def serve(status: Status, address: str) -> Iterator[str]:
    """Offer ``/`` (a page), ``/metrics`` and ``/status.json`` at HOST:PORT meanwhile; yields the URL."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise BadInput(f"{address!r} is no address: write HOST:PORT, or :PORT for the loopback interface")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            report = status.report()
            answers = {
                "/": ("text/html; charset=utf-8", page(report)),
                "/metrics": ("text/plain; version=0.0.4; charset=utf-8", prometheus(report)),
                "/status.json": ("application/json", json.dumps(report)),
            }
            kind, text = answers.get(self.path, ("text/plain", ""))
            self.send_response(200 if self.path in answers else 404)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    try:
        server = ThreadingHTTPServer((host or "127.0.0.1", int(port)), Handler)
    except OSError as error:
        raise AddressTaken(f"the status cannot be served at {address} ({error}): choose another port") from None
    thread = threading.Thread(target=server.serve_forever, name="pluribus-status", daemon=True)
    thread.start()
    try:
        yield f"http://{server.server_address[0]!s}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def fetched(where: str) -> dict[str, Any]:
    """The report of a job: from the URL at which it serves it, or from the folder of its checkpoint."""
    if where.startswith(("http://", "https://")):
        from urllib.error import URLError
        from urllib.request import urlopen

        try:
            with urlopen(f"{where.rstrip('/')}/{FILE}", timeout=FETCH_S) as answer:  # noqa: S310 - an http URL, as seen
                found = json.load(answer)
        except (URLError, OSError, ValueError) as error:
            raise Unreachable(f"no status at {where} ({error}): start the job with --status HOST:PORT") from None
    else:
        path = Path(where)
        path = path / FILE if path.is_dir() else path
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise BadInput(
                f"there is no status at {where} ({error}): name the --checkpoint of a job, or its --status URL"
            ) from None
    if not isinstance(found, dict) or "queries" not in found:
        raise BadInput(f"what is at {where} is no status of a job: name the --checkpoint of a job, or its --status URL")
    return found
