"""The resources for a load: logs, keepers, disks, cores of Spark, files of an archive. ``pluribus pipeline scale``.

Three parts. On paper: rates, bytes and counts from what one log and one core were measured to do, which are arguments.
Played: topics are not equally busy, and a topic belongs to one log, whole. So topics get shares by Zipf's law, seeded,
are dealt to the logs as the sink deals them (``sink.log_of``), and the busiest hour is played second by second for the
busiest log: how long its queue gets, and how long an event waits for its leader. Simulated: some seconds of that hour
are carried by the keepers of that log (``busy_log.py``), which shows what the protocol makes of it on disks and lines.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import msgspec

from ..core.errors import BadInput
from ..core.limits import DURABLE_TOPICS_MAX

DAY_S = 86_400


class Load(msgspec.Struct, frozen=True):
    """The load."""

    events_a_day: float = 1e9
    topics: int = 10_000
    body_bytes: int = 200
    skew: float = 0.8
    """The exponent of Zipf's law: 0 is all topics alike, 1 is like words in a language."""
    peak: float = 4.0
    """The busiest hour over the mean."""
    kept_days: float = 3.0
    """In the logs; the archive has all."""


class Means(msgspec.Struct, frozen=True):
    """The resources. Rates are those of one process on a core of its own; measure yours with ``pluribus bench log`` and
    ``pluribus bench pipeline``."""

    logs: int = 16
    voters: int = 3
    log_events_s: float = 60_000
    """What one leader has on the disks of a majority, publishers with some events at a time."""
    core_events_s: float = 250_000
    """What one core of Spark reads, decodes and counts in windows."""
    envelope_bytes: int = 24
    """Of an event in the log, beside its body, in batches of some dozens."""
    compression: float = 0.35
    """Bytes of an event in Parquet over its bytes in the log."""
    batch_s: float = 10.0
    """A micro-batch."""
    file_bytes: int = 128 << 20
    """Of an archive, compacted."""
    busy: float = 0.6
    """How busy a process or a core may be at the peak."""


def estimate(load: Load, means: Means, seed: int = 1, simulate_s: float = 0.0) -> dict[str, Any]:
    """The estimate, on paper and played; with ``simulate_s``, so many seconds of the busiest log are simulated, too.
    ``BadInput`` for absurd arguments."""
    for name, value in (*msgspec.structs.asdict(load).items(), *msgspec.structs.asdict(means).items()):
        if not 0 < value < 1e15 and not (name == "skew" and value == 0):
            raise BadInput(f"{name}={value:g} is out of range: use more than 0")
    if load.topics > DURABLE_TOPICS_MAX * means.logs:
        raise BadInput(
            f"{load.topics:,} topics in {means.logs} logs: one log takes {DURABLE_TOPICS_MAX:,}; use more logs"
        )
    topics = dealt(load, means.logs, seed)
    share = [sum(some.values()) for some in topics]
    mean_s = load.events_a_day / DAY_S
    peak_s = mean_s * load.peak
    hottest_s = peak_s * max(share)
    event_bytes = load.body_bytes + means.envelope_bytes
    logs_needed = math.ceil(peak_s / (means.log_events_s * means.busy))
    archive_day = load.events_a_day * event_bytes * means.compression
    cores = math.ceil(peak_s / (means.core_events_s * means.busy))
    played = play(load, means, max(share), seed)
    found: dict[str, Any] = {
        "events_s": round(mean_s),
        "peak_events_s": round(peak_s),
        "logs": {
            "given": means.logs,
            "needed": logs_needed,
            "topics_a_log": math.ceil(load.topics / means.logs),
            "hottest_share": round(max(share), 4),
            "over_mean": round(max(share) * means.logs, 2),
            "hottest_events_s": round(hottest_s),
            "hottest_busy": round(hottest_s / means.log_events_s, 3),
            "fits": hottest_s <= means.log_events_s * means.busy,
        },
        "keepers": {
            "leaders": means.logs,
            "processes": means.logs * means.voters,
            "write_bytes_s": round(hottest_s * event_bytes),
            "disk_bytes": round(load.events_a_day * max(share) * load.kept_days * event_bytes * 2),
        },
        "spark": {
            "cores": cores,
            "rows_a_batch": round(mean_s * means.batch_s),
            "tasks_a_batch": max(means.logs, cores),
            "place_bytes": 100 * means.logs,
        },
        "archive": {
            "bytes_a_day": round(archive_day),
            "files_a_day_compacted": max(math.ceil(archive_day / means.file_bytes), load.topics),
            "files_a_day_before": round(min(load.topics, mean_s * means.batch_s) * DAY_S / means.batch_s),
        },
        "played": played,
    }
    if simulate_s:
        from .busy_log import Site, simulated

        busiest = topics[share.index(max(share))]
        site = Site(voters=means.voters)
        found["simulated"] = simulated(busiest, hottest_s, load.body_bytes, simulate_s, seed, site)
    return found


def dealt(load: Load, logs: int, seed: int) -> list[dict[str, float]]:
    """The topics of each log with their shares of all events, dealt as the sink deals them."""
    from .sink import log_of

    weights = [1 / (rank**load.skew) for rank in range(1, load.topics + 1)]
    names = [f"topic/{number:06d}" for number in range(load.topics)]
    Random(seed).shuffle(names)
    total = sum(weights)
    found: list[dict[str, float]] = [{} for _ in range(logs)]
    for name, weight in zip(names, weights, strict=True):
        found[log_of(name, logs)][name] = weight / total
    return found


def shares(load: Load, logs: int, seed: int) -> list[float]:
    """The share of all events that each log gets."""
    return [sum(topics.values()) for topics in dealt(load, logs, seed)]


def play(load: Load, means: Means, share: float, seed: int, seconds: int = 3_600) -> dict[str, float]:
    """The busiest hour of the hottest log, second by second: events come in bursts (each second between nothing and
    twice the rate), its leader takes what it can, the rest waits."""
    random = Random(seed)
    rate = load.events_a_day / DAY_S * load.peak * share
    waiting = 0.0
    worst = 0.0
    waits: list[float] = []
    for _ in range(seconds):
        waiting = max(waiting + rate * 2 * random.random() - means.log_events_s, 0.0)
        worst = max(worst, waiting)
        waits.append(waiting / means.log_events_s)
    waits.sort()
    return {
        "seconds": seconds,
        "queue_max": round(worst),
        "wait_p99_s": round(waits[int(0.99 * len(waits))], 3),
        "behind_in_the_end": round(waiting),
    }
