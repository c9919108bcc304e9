"""``pluribus bench host``: what the log host costs: opening a long log, holds of the loop, space under churn.

Three measurements on a keeper in this process. A plain machine takes millions of small commands; then its keeper is
opened again. While it runs, the longest time for which a snapshot held the loop is watched. Last, an hour of churn,
played fast: events of a short-lived topic come and go by retention behind one event that stays for ever, and the bytes
in the store are compared with the live bytes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any

from ..group.keepers.seat import Seat
from ..group.sessions import FIRST_TIME, Command
from ..runtime.bus import Bus, connect
from ..runtime.keepers.durable_replica import DurableReplica
from ..runtime.loop.running import run as run_on_loop
from .ports import free_port
from .report import Goal, Result, at_most, report, result

COMMANDS = 5_000_000
QUICK_COMMANDS = 100_000
AT_A_TIME = 2_000
OPEN_S_MAX = 3.0
HOLD_MS_MAX = 10.0
CHURN_ROUNDS = 600
QUICK_ROUNDS = 60
CHURN_BYTES = 1 << 20
"""Bytes of each round, which stands for six seconds of the hour."""
KEPT_BYTES = 16 << 20
SLACK_BYTES = 64 << 20


class Counter:
    """A plain machine: how often each of a thousand names was counted."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}

    def apply(self, index: int, command: bytes) -> bytes:
        self.counts[command] = count = self.counts.get(command, 0) + 1
        return count.to_bytes(8, "little")

    def snapshot(self) -> bytes:
        return b"".join(name.ljust(8, b"\0") + count.to_bytes(8, "little") for name, count in self.counts.items())

    def restore(self, state: bytes) -> None:
        rows = [state[at : at + 16] for at in range(0, len(state), 16)]
        self.counts = {row[:8].rstrip(b"\0"): int.from_bytes(row[8:], "little") for row in rows}


class Holds:
    """How long each step of a snapshot held the loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest_worked_s = 0.0
        """Seconds of the processor, without the time of other programs."""
        self._steps = {"go_on": Seat.go_on, "take_snapshot": Seat.take_snapshot}

    def __enter__(self) -> Holds:
        for name, step in self._steps.items():
            setattr(Seat, name, self._timed(step))
        return self

    def __exit__(self, *_: object) -> None:
        for name, step in self._steps.items():
            setattr(Seat, name, step)

    def _timed(self, step: Callable[..., None]) -> Callable[..., None]:
        def timed(*args: Any, **kwargs: Any) -> None:
            began, worked = perf_counter(), thread_time()
            step(*args, **kwargs)
            self.longest_s = max(self.longest_s, perf_counter() - began)
            self.longest_worked_s = max(self.longest_worked_s, thread_time() - worked)

        return timed


def run(*, quick: bool = False, progress: Callable[[str], None], **_: Any) -> dict[str, Any]:
    commands = QUICK_COMMANDS if quick else COMMANDS
    rounds = QUICK_ROUNDS if quick else CHURN_ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        rate, holds = run_on_loop(_fill(path / "plain.db", commands, progress))
        hold_ms = holds.longest_s * 1e3
        open_s, worked_s = run_on_loop(_opened(path / "plain.db"))
        live, stored = run_on_loop(_churn(path / "churn.db", rounds, progress))
        files = sum(file.stat().st_size for file in path.glob("churn.db*"))
    results: list[Result] = [
        result(f"commands of a plain machine, {commands:,}", "commands/s", [rate]),
        result(f"opening {commands:,} commands", "s", [open_s]),
        result(f"opening {commands:,} commands, processor time", "s", [worked_s]),
        result("longest hold of the loop by a snapshot", "ms", [hold_ms]),
        result("longest hold of the loop by a snapshot, processor time", "ms", [holds.longest_worked_s * 1e3]),
        result("store after churn", "MB", [stored / 1e6]),
        result("live after churn", "MB", [live / 1e6]),
        result("files after churn, as long as they ever were", "MB", [files / 1e6]),
    ]
    goals: list[Goal] = [
        at_most("opening a plain machine, s", open_s, OPEN_S_MAX),
        at_most("longest hold of the loop by a snapshot, ms", hold_ms, HOLD_MS_MAX),
        at_most("store against twice the live bytes and 64 MiB", stored / (2 * live + SLACK_BYTES), 1.0),
    ]
    return report("host", results, goals)


def _url() -> str:
    return f"udp://127.0.0.1:{free_port()}/bench-host"


async def _fill(path: Path, commands: int, progress: Callable[[str], None]) -> tuple[float, Holds]:
    async with connect(_url(), store=path, machines={"counter": Counter}) as bus:
        await bus.replica("counts", "counter", durable=True)
        keeper = bus.keeping.keeper
        assert keeper is not None
        hosted = keeper.desk.host.named("counts")
        assert hosted is not None
        began = perf_counter()
        with Holds() as holds:
            for first in range(0, commands, AT_A_TIME):
                if first % (commands // 10) == 0:
                    progress(f"{first:,} of {commands:,} commands")
                batch = [
                    Command(number % 64, number, number, FIRST_TIME, b"n%d" % (number % 1_000)).encoded()
                    for number in range(first, first + AT_A_TIME)
                ]
                await keeper.desk.ordered(hosted.number, batch)
        return commands / (perf_counter() - began), holds


async def _opened(path: Path) -> tuple[float, float]:
    """Seconds until the state is loaded again, and the processor's seconds among them."""
    began, worked = perf_counter(), process_time()
    async with connect(_url(), store=path, machines={"counter": Counter}) as bus:
        replica: DurableReplica[Counter] = await bus.replica("counts", "counter", durable=True)
        await replica.read(lambda machine: len(machine.counts))
        return perf_counter() - began, process_time() - worked


async def _churn(path: Path, rounds: int, progress: Callable[[str], None]) -> tuple[int, int]:
    """Live bytes, and bytes in the rows of the log, at the moment when they differed most."""
    async with connect(_url(), store=path) as bus:
        keeper = bus.keeping.keeper
        assert keeper is not None
        await bus.durable.publish("eternal", b"stays")
        await bus.durable.retain("short", size=KEPT_BYTES)
        body = bytes(1_024)
        worst = (1, 0)
        for number in range(rounds):
            if number % max(rounds // 10, 1) == 0:
                progress(f"churn: {number} of {rounds} rounds")
            await bus.durable.publish_many([("short", body)] * (CHURN_BYTES // len(body)))
            if number % 20 == 19:
                await asyncio.sleep(1.1)  # retention, snapshots and freeing have their turns
                live, stored = keeper.desk.host.space.live, _stored(bus)
                if stored / (2 * live + SLACK_BYTES) > worst[1] / (2 * worst[0] + SLACK_BYTES):
                    worst = (live, stored)
        return worst


def _stored(bus: Bus) -> int:
    keeper = bus.keeping.keeper
    assert keeper is not None
    ledger = keeper.keeper.ledger
    size = 0
    for at in range(ledger.start, ledger.end):
        rows = ledger.read(at, at + 1, 1)
        size += len(rows[0]) if rows else 0
    return size
