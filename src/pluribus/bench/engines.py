"""``pluribus bench engines``: a best-effort group of two processes on every engine, beside sockets without Pluribus."""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from . import limits, members
from .ports import free_port
from .processes import Role, measure
from .report import Result, at_least, at_most, report, result

SIZES = (100, 1_024, 16_384)
COUNTS = {100: 1_500_000, 1_024: 400_000, 16_384: 40_000}
RAW_SHARE = 5
"""How many times fewer messages unbatched ways get, because they are slower."""
ROUNDS = 2_000
PACE_S = 0.001

Progress = Callable[[str], None]


def run(*, quick: bool = False, progress: Progress = lambda text: None, **_: Any) -> dict[str, Any]:
    """Every engine at every size; three runs each, interleaved with the limit so that both see the same machine."""
    runs = 1 if quick else 3
    share = 10 if quick else 1
    results: list[Result] = []
    rates: dict[tuple[str, int], list[float]] = {}
    trips: dict[str, list[float]] = {}
    with carried() as nats:
        urls: dict[str, Callable[[], str]] = {
            "inproc": lambda: "inproc://bench",
            "udp": lambda: f"udp://127.0.0.1:{free_port()}/bench",
            "multicast": lambda: f"multicast://bench-{free_port()}",
            "tcp": lambda: f"tcp://127.0.0.1:{free_port()}/bench",
            **({"nats": lambda: f"nats://{nats}/bench-{free_port()}"} if nats else {}),
        }
        for attempt in range(runs):
            for size in SIZES:
                count = COUNTS[size] // share
                progress(f"run {attempt + 1} of {runs}: limits at {size} B")
                rates.setdefault(("batched limit", size), []).append(batched(count, size))
                rates.setdefault(("raw udp", size), []).append(raw(count // RAW_SHARE, size))
                rates.setdefault(("raw tcp", size), []).append(raw_tcp(count // RAW_SHARE, size))
                for name, url in urls.items():
                    progress(f"run {attempt + 1} of {runs}: {name} at {size} B")
                    rate, lost = group_rate(url(), count if name != "nats" else count // RAW_SHARE, size)
                    rates.setdefault((name, size), []).append(rate)
                    if lost:
                        progress(f"{name} lost {lost} messages of {count}")
            rounds = ROUNDS // share
            progress(f"run {attempt + 1} of {runs}: round trips")
            trips.setdefault("raw udp", []).extend(raw_trips(rounds))
            trips.setdefault("asyncio udp", []).extend(asyncio_trips(rounds))
            trips.setdefault("asyncio udp, no limit of time", []).extend(asyncio_trips(rounds, None))
            for name, url in urls.items():
                trips.setdefault(name, []).extend(group_trips(url(), rounds))
    for (name, size), values in rates.items():
        results.append(result(f"{name} {size} B", "messages/s", values))
    for name, values in trips.items():
        for percent in (50, 99):
            results.append(result(f"{name} round trip p{percent}", "µs", [percentile(values, percent)]))
    imports = [import_ms() for _ in range(runs * 3)]
    results.append(result("import pluribus", "ms", imports))
    return report("engines", results, _goals(rates, trips, imports))


def _goals(rates: dict[tuple[str, int], list[float]], trips: dict[str, list[float]], imports: list[float]) -> list[Any]:
    limit = statistics.median(rates[("batched limit", 100)])
    plain = percentile(trips["asyncio udp"], 50)
    best = max(("udp", "multicast"), key=lambda name: statistics.median(rates[(name, 100)]))
    return [
        at_least(f"{best}, 100 B: share of the batched limit", statistics.median(rates[(best, 100)]) / limit, 0.65),
        at_most("udp round trip p50 over plain asyncio UDP", percentile(trips["udp"], 50) / plain, 1.5),
        at_most("import pluribus, ms", statistics.median(imports), 150),
    ]


def batched(count: int, size: int) -> float:
    port = free_port()
    roles: list[Role] = [(limits.batched_receiver, (port, count)), (limits.batched_sender, (port, count, size))]
    return float(measure(roles, 1)[0])


def raw(count: int, size: int) -> float:
    port = free_port()
    roles: list[Role] = [(limits.raw_receiver, (port, count)), (limits.raw_sender, (port, count, size))]
    return float(measure(roles, 1)[0])


def raw_tcp(count: int, size: int) -> float:
    port = free_port()
    shape = (port, count, size)
    return float(measure([(limits.raw_tcp_receiver, shape), (limits.raw_tcp_sender, shape)], 1)[0])


def group_rate(url: str, count: int, size: int) -> tuple[float, int]:
    """Messages a second at the receiver's application, and how many were lost on the way."""
    roles: list[Role] = [(members.receiver, (url, count)), (members.sender, (url, count, size))]
    if url.startswith("inproc:"):
        roles = [(members.both, (url, count, size))]
    rate, lost = measure(roles, 1)[0]
    return float(rate), int(lost)


def raw_trips(rounds: int) -> list[float]:
    port = free_port()
    roles: list[Role] = [(limits.raw_echo, (port, rounds)), (limits.raw_ping, (port, rounds, 100, PACE_S))]
    return list(measure(roles, 1)[0])


def asyncio_trips(rounds: int, answer_s: float | None = limits.ANSWER_S) -> list[float]:
    port = free_port()
    shape = (port, rounds, 100, PACE_S, answer_s)
    return list(measure([(limits.asyncio_echo, (port, rounds)), (limits.asyncio_ping, shape)], 1)[0])


def group_trips(url: str, rounds: int, stack: str = "best-effort") -> list[float]:
    shape = (url, rounds, 100, PACE_S, stack)
    roles: list[Role] = [(members.echo, (url, stack)), (members.ping, shape)]
    if url.startswith("inproc:"):
        roles = [(members.echo_and_ping, shape)]
    return list(measure(roles, 1)[0])


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def import_ms() -> float:
    """Milliseconds of a new interpreter that imports pluribus, less those of one that imports nothing."""

    def took(code: str) -> float:
        started = perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return (perf_counter() - started) * 1e3

    return took("import pluribus") - took("pass")


@contextmanager
def carried() -> Iterator[str]:
    """A NATS server for the carried engine, ``host:port``; empty where none is installed."""
    server = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
    if server is None:
        yield ""
        return
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [server, "-a", "127.0.0.1", "-p", str(port)],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until = perf_counter() + 10
            while perf_counter() < until:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
