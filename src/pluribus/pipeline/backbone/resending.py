"""Dead events sent round again: once more to the topics that they came from, each exactly once.

The cause was corrected meanwhile: a rule, or the table's fields. (An event whose own content is wrong will be dead
again; that is counted anew.) A resend takes the dead events that none before it has taken, or only those of one rule or
table, and publishes them with their bodies, headers and identities. They get the time of the resend, as an event with
its old time would mostly be late; ``happened`` in their headers is the old one. ``keep_times`` leaves it.

Exactly once: which events resend N takes is written down first (``resent/N.plan``), then they are published under
(writer, N), then the plan is renamed. A process that is killed in between leaves its plan, and the next one does it
again under the same number; the keepers know whether it was done.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec

from ...core.errors import BadInput
from ...pubsub.durable.batch import StoredBatch, pack
from ...runtime.clients.log_client import LogClient
from ...wire.bodies import BYTES
from ..columns import kind_of_name
from ..files import files_of
from .parts import BODY, Configuration
from .report import Report

FOLDER = "resent"
HEADERS = ("table", "rule", "reason", "offset", "kind")
"""Headers that the intake added to dead events."""
EVENTS_A_PART = 4_096


class Plan(msgspec.Struct):
    """Ranges of offsets of dead topics, and which of their events."""

    number: int
    ranges: dict[str, tuple[int, int]]
    rule: str = ""
    table: str = ""
    keep_times: bool = False


_plan = msgspec.json.Decoder(Plan)


def resend(
    configuration: Configuration, *, rule: str = "", table: str = "", keep_times: bool = False, spark: Any = None
) -> dict[str, Any]:
    """Send dead events round again; needs Spark only where the state is no local folder. ``BadInput`` for a rule or a
    table that there is not, and never was."""
    files = files_of(configuration.state, spark)
    _check_known(configuration, Report(files), rule, table)
    writer = f"{configuration.name} resend"
    sent = again = 0
    with LogClient(configuration.url) as keepers:
        names = [found.path for found in files.list(FOLDER)]
        for name in sorted(name for name in names if name.endswith(".plan")):
            again += _do(keepers, configuration, writer, _plan.decode(files.read(name)))
            files.move(name, name.removesuffix(".plan") + ".done")
        done = [_plan.decode(files.read(found.path)) for found in files.list(FOLDER) if found.path.endswith(".done")]
        plan = _planned(keepers, configuration, done, rule, table, keep_times)
        if plan.ranges:
            name = f"{FOLDER}/{plan.number:09d}"
            files.write(f"{name}.plan", msgspec.json.encode(plan))
            sent = _do(keepers, configuration, writer, plan)
            files.move(f"{name}.plan", f"{name}.done")
    return {"resent": sent, "finished": again}


def _check_known(configuration: Configuration, report: Report, rule: str, table: str) -> None:
    """Rules and tables that the configuration had before are known to the report."""
    tables = {silver.name: {BODY, *(one.name for one in silver.rules)} for silver in configuration.silver}
    for broken in report.summary.rules:
        name, _, of = broken.partition("/")
        tables.setdefault(name, {BODY}).add(of)
    if table and table not in tables:
        raise BadInput(f"there is no silver table {table!r}: use one of {', '.join(tables)}")
    rules = sorted(set().union(*(some for name, some in tables.items() if table in ("", name))))
    if rule and rule not in rules:
        raise BadInput(f"there is no rule {rule!r}{f' of {table!r}' if table else ''}: use one of {', '.join(rules)}")


def _planned(
    keepers: LogClient, configuration: Configuration, done: list[Plan], rule: str, table: str, keep_times: bool
) -> Plan:
    """The dead events that no resend of everything, and none of the same choice, has taken."""
    ranges: dict[str, tuple[int, int]] = {}
    for known in keepers.topics(configuration.prefix("dead") + "#"):
        first = known.first
        for plan in done:
            if known.topic in plan.ranges and plan.rule in ("", rule) and plan.table in ("", table):
                first = max(first, plan.ranges[known.topic][1])
        if first < known.end:
            ranges[known.topic] = (first, known.end)
    return Plan(max((plan.number for plan in done), default=-1) + 1, ranges, rule, table, keep_times)


def _do(keepers: LogClient, configuration: Configuration, writer: str, plan: Plan) -> int:
    prefix = configuration.prefix("dead")
    attempt, session = uuid.uuid4().hex, uuid.uuid4().int >> 65 or 1
    parts = count = 0
    for topic, (start, stop) in sorted(plan.ranges.items()):
        for batch in keepers.read(topic, start, stop, whole=True):
            for packed, events in _again(batch, topic.removeprefix(prefix), plan, session, count):
                keepers.stage(writer, plan.number, attempt, parts, packed)
                parts += 1
                count += events
    keepers.commit_batch(writer, plan.number, [(attempt, parts)] if parts else [])
    return count


def _again(batch: StoredBatch, topic: str, plan: Plan, session: int, before: int) -> Iterator[tuple[bytes, int]]:
    """The events that are wanted, packed; in runs of one kind of body."""
    extra, ends, times = batch.extra, batch.ends.tolist(), batch.times.tolist()
    ids = extra.ids or [(batch.head.session, number) for number in batch.sequences.tolist()]
    held: list[tuple[Any, int, bytes, dict[str, Any], tuple[int, int]]] = []
    now_us = int(time.time() * 1e6)
    for place in range(len(batch)):
        headers = dict(extra.headers[place] or {}) if extra.headers else {}
        told = {name: headers.pop(name, "") for name in HEADERS}
        if (plan.rule and told["rule"] != plan.rule) or (plan.table and told["table"] != plan.table):
            continue
        body = bytes(batch.bodies[ends[place] : ends[place + 1]])
        at = times[place] if plan.keep_times else now_us
        if not plan.keep_times:
            headers.setdefault("happened", f"{times[place] / 1e6:.6f}")
        headers["resent"] = str(int(headers.get("resent", 0)) + 1)
        held.append((_kind(told["kind"], body), at, body, headers, (ids[place][0], ids[place][1])))
    while held:
        kind = held[0][0]
        size = next((at for at, one in enumerate(held) if one[0] != kind), len(held))
        some, held = held[: min(size, EVENTS_A_PART)], held[min(size, EVENTS_A_PART) :]
        columns = [list(one) for one in zip(*some, strict=True)]
        packed = pack(topic, session, before + 1, 0, kind, columns[1], columns[2], columns[3], ids=columns[4])
        before += len(some)
        yield packed, len(some)


def _kind(name: str, body: bytes) -> Any:
    """As it was published, if it is one object; else bytes."""
    kind = kind_of_name(name) if name else BYTES
    try:
        msgspec.msgpack.decode(body, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return BYTES
    return kind
