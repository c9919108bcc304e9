"""``pluribus top``: every member of a bus with its rates, credit, views, flushes, suspicions and drops; keepers with
their logs; machines with their versions and counts of commands; queues with their depth and rates; consumer groups with
how far they are behind.

It asks members from outside (``runtime.survey``) and joins nothing, so looking changes nothing.
"""

import asyncio
import os
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import Unreachable
from pluribus.core.url import DEFAULT_URL
from pluribus.runtime.group.survey import SurveyAnswer, survey
from pluribus.runtime.loop.running import run

WIDE = 140
"""Columns of a terminal from which on everything is shown."""
DROPS = {
    "transport": ("dropped",),
    "fragment": ("lost", "refused"),
    "window": ("lost", "over"),
    "reliable": ("early_dropped",),
    "groups": ("given_up",),
}
"""By layer: the counters of messages that were dropped. A reliable layer above may have repaired these losses."""
NOBODY = "nobody answers on {url}: are there members, on this machine or interface, and with the same secret?"


def command(
    url: Annotated[str | None, typer.Argument(help="The bus; by default $PLURIBUS_URL, then the loopback bus.")] = None,
    every: Annotated[
        float, typer.Option(help="Seconds between two questions; rates are over this time.", min=0.1)
    ] = 1.0,
    times: Annotated[int, typer.Option(help="End after so many tables; 0 goes on until interrupted.", min=0)] = 0,
    json: JsonFlag = False,
) -> None:
    """Show what the members of a bus are doing. With --json: one object, from two questions to the members."""
    where = url or os.environ.get("PLURIBUS_URL") or DEFAULT_URL
    if json:
        print_json(run(_look(where, every)))
    else:
        run(_show(where, every, times))


async def _look(url: str, every_s: float) -> dict[str, Any]:
    async with survey(url) as asked:
        before = await asked.take()
        if not before:
            raise Unreachable(NOBODY.format(url=url))
        await asyncio.sleep(every_s)
        return {"url": url, "members": members(await asked.take(), before)}


async def _show(url: str, every_s: float, times: int) -> None:
    from rich.console import Console
    from rich.live import Live

    async with survey(url) as asked:
        before = await asked.take()
        if not before:
            raise Unreachable(NOBODY.format(url=url))
        console = Console()
        shown = 0
        with Live(console=console, auto_refresh=False) as live:
            while not times or shown < times:
                await asyncio.sleep(every_s)
                now = await asked.take()
                await asyncio.to_thread(_draw, live, url, members(now, before))
                before, shown = now, shown + 1


def _draw(live: Any, url: str, found: list[dict[str, Any]]) -> None:
    """Draw in a thread, because drawing takes longer than one turn of the loop may take."""
    from rich.console import Group

    tables = [
        table
        for table in (
            _table(url, found, live.console.width),
            _keepers(found, live.console.width),
            _machines(found, live.console.width),
            _queues(found),
            _groups(found),
        )
        if table is not None
    ]
    live.update(Group(*tables), refresh=True)


def members(now: list[SurveyAnswer], before: list[SurveyAnswer]) -> list[dict[str, Any]]:
    """A report for each member: a summary, every counter of every layer, and how fast the counters grow."""
    earlier = {answer.member: answer for answer in before}
    return [
        {
            "member": str(answer.member),
            "name": answer.name,
            **summary(answer, rates := answer.rates(earlier.get(answer.member, answer))),
            "keeper": answer.layers.get("keeper"),
            "machines": [
                {**machine, "where": where, **_grown(machine, where, answer, earlier.get(answer.member))}
                for where in ("machines", "memory")
                for machine in answer.layers.get(where, {}).values()
            ],
            "layers": answer.layers,
            "rates": rates,
        }
        for answer in now
    ]


def _grown(machine: dict[str, Any], where: str, now: SurveyAnswer, before: SurveyAnswer | None) -> dict[str, float]:
    """Messages a second that were sent to a queue, and that were settled."""
    earlier = {} if before is None else before.layers.get(where, {})
    known = next((one for one in earlier.values() if one["machine"] == machine["machine"]), None)
    if before is None or known is None or "depth" not in machine or now.at <= before.at:
        return {}
    seconds = now.at - before.at
    return {f"{name}_s": round((machine[name] - known[name]) / seconds, 3) for name in ("sent", "settled")}


def summary(answer: SurveyAnswer, rates: dict[str, dict[str, float]]) -> dict[str, Any]:
    layers = answer.layers
    membership, transport = layers.get("membership", {}), rates.get("transport", {})
    window = "reliable" if "reliable" in layers else "window"
    return {
        "view": membership.get("view"),
        "members": membership.get("members"),
        "primary": membership.get("primary"),
        "views": membership.get("views"),
        "flush_ms": {
            which: round(membership[f"flush_s_{which}"] * 1e3, 3)
            for which in ("last", "p95", "max")
            if f"flush_s_{which}" in membership
        },
        "messages_in_s": rates.get(window, {}).get("messages_in", 0.0),
        "messages_out_s": rates.get(window, {}).get("messages_out", 0.0),
        "bytes_in_s": transport.get("bytes_in", 0.0),
        "bytes_out_s": transport.get("bytes_out", 0.0),
        "credit_bytes": layers[window]["room_bytes"] if layers.get(window, {}).get("streams_out") else None,
        "stalls": layers.get(window, {}).get("stalls", 0),
        "suspicions": layers.get("detector", {}).get("suspicions", 0),
        "drops": sum(layers.get(layer, {}).get(name, 0) for layer, names in DROPS.items() for name in names),
    }


def _short(url: str, rows: list[dict[str, Any]]) -> Any:
    """The columns that fit 80 characters; ``--json`` has the rest."""
    from rich.markup import escape

    table = _compact("member", "view", "in/s", "out/s", "MB in/s", "out/s", "stalls", "susp.", "drops")
    table.title = escape(url)
    for row in rows:
        view = "–" if row["view"] is None else f"{row['view']}/{row['members']}{'' if row['primary'] else ' min.'}"
        table.add_row(
            escape(row["name"] or str(row["member"])),
            view,
            f"{row['messages_in_s']:,.0f}",
            f"{row['messages_out_s']:,.0f}",
            f"{row['bytes_in_s'] / 1e6:,.1f}",
            f"{row['bytes_out_s'] / 1e6:,.1f}",
            f"{row['stalls']:,}",
            f"{row['suspicions']:,}",
            f"{row['drops']:,}",
        )
    return table


def _table(url: str, rows: list[dict[str, Any]], width: int) -> Any:
    if width < WIDE:
        return _short(url, rows)
    from rich.markup import escape
    from rich.table import Table

    heads = ("member", "view", "in/s", "out/s", "MB in/s", "MB out/s", "credit", "stalls", "views")
    table = Table(*heads, "flush ms last, p95, max", "suspicions", "drops", title=escape(url), show_edge=False)
    for row in rows:
        flush = row["flush_ms"]
        view = (
            "–" if row["view"] is None else f"{row['view']} of {row['members']}{'' if row['primary'] else ', minority'}"
        )
        table.add_row(
            escape(f"{row['name']} {row['member']}"),
            view,
            f"{row['messages_in_s']:,.0f}",
            f"{row['messages_out_s']:,.0f}",
            f"{row['bytes_in_s'] / 1e6:,.1f}",
            f"{row['bytes_out_s'] / 1e6:,.1f}",
            "–" if row["credit_bytes"] is None else f"{row['credit_bytes']:,}",
            f"{row['stalls']:,}",
            "–" if row["views"] is None else f"{row['views']:,}",
            ", ".join(f"{flush[which]:,.1f}" for which in ("last", "p95", "max")) if flush else "–",
            f"{row['suspicions']:,}",
            f"{row['drops']:,}",
        )
    return table


def _compact(name: str, *heads: str) -> Any:
    """A table of one line a row in 80 columns: a name, which may be cut, and numbers."""
    from rich.table import Table

    table = Table(show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(name, no_wrap=True, max_width=20)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _keepers(rows: list[dict[str, Any]], width: int) -> Any:
    """The logs of members that are keepers; None if there are none. A narrow one leaves out what is applied."""
    from rich.markup import escape

    wide = width >= WIDE
    table = _compact("keeper", "is", "rows", *["applied"] * wide, "live MB", "dead MB", "snapshot", "elected")
    for row in rows:
        if (kept := row["keeper"]) is not None:
            table.add_row(
                escape(row["name"]),
                kept["role"],
                f"{kept['rows']:,}",
                *[f"{kept['applied']:,}"] * wide,
                f"{kept['live_bytes'] / 1e6:,.1f}",
                f"{kept['dead_bytes'] / 1e6:,.1f}",
                "–" if kept["snapshot_s"] < 0 else f"{kept['snapshot_s']:,.0f} s ago",
                f"{kept['elections']:,}",
            )
    return table if table.row_count else None


def _machines(rows: list[dict[str, Any]], width: int) -> Any:
    """Each machine once: as the leading keeper has it, or the first member that has it in memory."""
    from rich.markup import escape

    written = "written in its turns" if width >= WIDE else "written"
    table = _compact("machine", "kind", "version", "where", "commands", written)
    for machine in _each(rows):
        durable = machine["where"] == "machines"
        table.add_row(
            escape(machine["machine"]),
            escape(machine["kind"]),
            str(machine["version"]),
            "keepers" if durable else "memory",
            f"{machine['commands']:,}",
            f"{machine['turn_bytes']:,} B" if durable else "–",
        )
    return table if table.row_count else None


def _each(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["keeper"] or {}).get("role") != "leader"):
        for machine in row["machines"]:
            found.setdefault((machine["where"], machine["machine"]), machine)
    return list(found.values())


def _queues(rows: list[dict[str, Any]]) -> Any:
    """Queues with their depth and rates; None if there are none."""
    from rich.markup import escape

    table = _compact("queue", "depth", "held", "dead", "consumers", "sent/s", "settled/s")
    for machine in _each(rows):
        if "depth" in machine:
            counts = [f"{machine[name]:,}" for name in ("depth", "held", "dead", "consumers")]
            rates = [f"{machine[name]:,.0f}" if name in machine else "–" for name in ("sent_s", "settled_s")]
            table.add_row(escape(machine["machine"].removeprefix("queue.")), *counts, *rates)
    return table if table.row_count else None


def _groups(rows: list[dict[str, Any]]) -> Any:
    """Consumer groups, and how many events each has not settled; None if there are none."""
    from rich.markup import escape

    table = _compact("consumer group", "behind", "held", "dead", "members")
    for machine in _each(rows):
        if "behind" in machine:
            counts = [f"{machine[name]:,}" for name in ("behind", "held", "dead", "consumers")]
            table.add_row(escape(machine["machine"].removeprefix("consumers/")), *counts)
    return table if table.row_count else None
