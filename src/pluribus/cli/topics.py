"""``pluribus topics``: what is advertised, retained, published just now and kept on disk; bounds, and removal."""

import asyncio
import math
import re
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput, Gap, NoKeeper

command = typer.Typer(add_completion=False, help="List, show, bound and empty topics; see docs/topics.md.")
Url = Annotated[
    str | None, typer.Option(help="The bus, or client://…; $PLURIBUS_URL or multicast on loopback by default.")
]
Seconds = Annotated[float, typer.Option(help="How long to listen to what is published.", min=0.1)]
Topic = Annotated[str, typer.Argument(help="Such as stocks/ibm/tick.")]

TIMES_S = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
SIZES_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@command.callback(invoke_without_command=True)
def _root(context: typer.Context, url: Url = None, seconds: Seconds = 2.0, json: JsonFlag = False) -> None:
    if context.invoked_subcommand is None:
        ls(url=url, seconds=seconds, json=json)


@command.command()
def ls(
    pattern: Annotated[str, typer.Argument(help="Topics, such as stocks/#.")] = "#",
    url: Url = None,
    seconds: Seconds = 2.0,
    json: JsonFlag = False,
) -> None:
    """List topics: advertised, retained, published meanwhile, and kept on disk; with durable subscribers and how many
    events each is behind."""
    from pluribus.pubsub.topics import levels_of
    from pluribus.runtime.loop.running import run

    levels_of(pattern)
    found = run(_look(url, pattern, seconds))
    if json:
        print_json(found)
    else:
        _print(found["topics"])


@command.command()
def show(topic: Topic, url: Url = None, seconds: Seconds = 0.5, json: JsonFlag = False) -> None:
    """Show one topic: who advertises it, its log, its bounds, its subscribers. Exits with 1 if there is none."""
    from pluribus.pubsub.topics import checked_topic
    from pluribus.runtime.loop.running import run

    checked_topic(topic)
    rows = [row for row in run(_look(url, topic, seconds))["topics"] if row["topic"] == topic]
    if json:
        print_json({"topic": rows[0] if rows else None})
    for row in [] if json else rows:
        typer.echo("\n".join(_story(row)))
    if not rows:
        if not json:
            typer.echo(f"nobody advertises, retains, publishes or keeps {topic}")
        raise typer.Exit(1)


@command.command()
def retain(
    topic: Topic,
    age: Annotated[str, typer.Option(help="How old events may become, as 7d, 12h, 30m or 10s; 0: any age.")] = "0",
    size: Annotated[str, typer.Option(help="How many bytes are kept, as 500M or 10G; 0: any number.")] = "0",
    keys: Annotated[
        str | None, typer.Option(help="`last`: of the events that were published with one key, the last one.")
    ] = None,
    url: Url = None,
    json: JsonFlag = False,
) -> None:
    """Bound a durable topic by age, by size, or both, or by keys; events beyond the bounds are removed soon."""
    from pluribus.pubsub.topics import checked_topic

    checked_topic(topic)
    age_s, size_bytes = _amount(age, TIMES_S, "--age"), _amount(size, SIZES_BYTES, "--size")
    _asked(url, lambda bus: bus.durable.retain(topic, age=age_s, size=size_bytes, keys=keys))
    if json:
        print_json({"topic": topic, "age_s": age_s, "size_bytes": size_bytes, "keys": keys})
    else:
        typer.echo(f"{topic} keeps {_bounds(age_s, size_bytes, keys is not None)}")


@command.command()
def delete(
    topic: Topic,
    url: Url = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: JsonFlag = False,
) -> None:
    """Remove every event that a durable topic has now. Offsets of later events go on behind them."""
    from pluribus.pubsub.topics import checked_topic

    checked_topic(topic)
    if not yes:
        typer.confirm(f"Remove every event of {topic} from the disks of all keepers?", abort=True)
    removed = _asked(url, lambda bus: bus.durable.delete(topic))
    if json:
        print_json({"topic": topic, "removed": removed})
    else:
        typer.echo(f"{removed:,} events of {topic} were removed")


@command.command()
def groups(
    url: Url = None,
    json: JsonFlag = False,
    remove: Annotated[
        str | None, typer.Option(help="Forget this group: how far it came, and its dead letters. Events stay.")
    ] = None,
    redrive: Annotated[str | None, typer.Option(help="Hand out the dead letters of this group once more.")] = None,
) -> None:
    """List consumer groups: what each reads, its members, events that are not settled, dead letters."""
    if redrive is not None:
        count = _asked(url, lambda bus: bus.durable.redrive_group(redrive))
        if json:
            print_json({"group": redrive, "redriven": count})
        else:
            typer.echo(f"{count:,} events are handed out again to {redrive}")
        return
    if remove is not None:
        _asked(url, lambda bus: bus.durable.remove_group(remove))
        if json:
            print_json({"removed": remove})
        else:
            typer.echo(f"the consumer group {remove} was removed; its events stay in their topics")
        return
    found = _asked(url, lambda bus: bus.durable.groups())
    if json:
        print_json({"groups": [_told(one) for one in found]})
        return
    for one in found:
        state = f"{one.members:,} members, {one.held:,} held, {one.behind:,} behind, {len(one.dead):,} dead letters"
        typer.echo(f"{one.name}  {', '.join(one.patterns)}  {state}")


def _told(group: Any) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.structs.asdict(group)
    dead = ("topic", "offset", "tries", "reason")
    return told | {"dead": [{name: getattr(one, name) for name in dead} for one in group.dead]}


# What there is


async def _look(url: str | None, pattern: str, seconds: float) -> dict[str, Any]:
    from pluribus.pubsub.topics import matches
    from pluribus.runtime.bus import connect

    async with connect(url, name="topics") as bus:
        member = bus.url.scheme != "client"
        kept: set[str] = set()

        async def listened() -> Counter[str]:
            async with bus.subscribe(pattern, slow="tell", retain=not member) as events:  # a client has no other way
                return await _seen(events, seconds, kept)

        seen, (known, subscribers) = await asyncio.gather(listened(), _durable(bus, pattern))
        adverts = await bus.topics(pattern)
        members = None
        if member:
            members = len((await bus.pubsub.base()).group.view) - 1
            kept = {topic for topic in bus.pubsub.retained() if matches(pattern, topic)}
        rows: dict[str, dict[str, Any]] = {}

        def row(topic: str) -> dict[str, Any]:
            empty = {"topic": topic, "members": [], "type": "", "about": "", "retained": False, "events_per_s": 0.0}
            return rows.setdefault(topic, {**empty, "durable": None, "subscribers": {}})

        for advert in adverts:
            found = row(advert.pattern)
            found["members"] += list(advert.members.values())
            found["type"], found["about"] = advert.type, advert.about
        for topic in kept:
            row(topic)["retained"] = True
        for topic, count in seen.items():
            row(topic)["events_per_s"] = round(count / seconds, 2)
        for one in known:
            row(one.topic)["durable"] = {
                "first": one.first,
                "end": one.end,
                "bytes": one.kept_bytes,
                "latest": one.latest_us / 1e6,
                "age_s": one.age_us / 1e6,
                "size_bytes": one.size_bytes,
                "keys": "last" if one.keys else None,
            }
            behind = {
                who.name: one.end - max(who.offsets[one.topic], one.first)
                for who in subscribers
                if one.topic in who.offsets
            }
            row(one.topic)["subscribers"] = behind
        return {"members": members, "topics": [rows[topic] for topic in sorted(rows)]}


async def _durable(bus: Any, pattern: str) -> tuple[list[Any], list[Any]]:
    """Topics on disk, and who subscribes; nothing on a bus that has no keeper."""
    try:
        return await bus.durable.topics(pattern), await bus.durable.subscribers(pattern)
    except NoKeeper:
        return [], []


async def _seen(events: Any, seconds: float, kept: set[str]) -> Counter[str]:
    """Counts of the events that came under each topic; ``kept`` collects the topics with retained values."""
    seen: Counter[str] = Counter()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                with suppress(Gap):  # on a busy bus some are missed: those that came are counted
                    events_now = await events.receive_many()
                    kept.update(event.topic for event in events_now if event.retained)
                    seen.update(event.topic for event in events_now if not event.retained)
    return seen


def _asked(url: str | None, ask: Any) -> Any:
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def asked() -> Any:
        async with connect(url, name="topics") as bus:
            return await ask(bus)

    return run(asked())


# As people read it


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if not rows:
        typer.echo("no topic is advertised, retained, published or kept here")
        return
    table = Table(show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("topic", overflow="fold")
    for head, justify in (("events/s", "right"), ("offsets", "right"), ("size", "right"), ("who", "left")):
        table.add_column(head, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        log = row["durable"]
        rate = f"{row['events_per_s']:,.1f}" if row["events_per_s"] else ""
        offsets = "" if log is None else f"{log['first']:,}–{log['end']:,}"
        size = "" if log is None else _size(log["bytes"])
        table.add_row(escape(row["topic"]), rate, offsets, size, escape("; ".join(_who(row))))
    Console().print(table)


def _who(row: dict[str, Any]) -> list[str]:
    said = []
    if row["members"]:
        said.append(f"by {', '.join(row['members'])}{' of ' + row['type'] if row['type'] else ''}")
    if row["retained"]:
        said.append("retained")
    return said + [
        f"{name} {f'{behind:,} behind' if behind else 'up to date'}" for name, behind in row["subscribers"].items()
    ]


def _story(row: dict[str, Any]) -> list[str]:
    lines = [row["topic"]]
    if row["members"]:
        about = f": {row['about']}" if row["about"] else ""
        lines.append(f"  advertised by {', '.join(row['members'])}, type {row['type'] or 'any'}{about}")
    if row["retained"]:
        lines.append("  has a last value for who subscribes")
    if row["events_per_s"]:
        lines.append(f"  {row['events_per_s']:,.1f} events a second")
    if (log := row["durable"]) is not None:
        latest = datetime.fromtimestamp(log["latest"], UTC).isoformat(sep=" ", timespec="seconds")
        events = log["end"] - log["first"]
        lines.append(
            f"  on disk: {events:,} events, offsets {log['first']:,} up to {log['end']:,}, {_size(log['bytes'])}"
        )
        lines.append(f"  the last one is of {latest}; it keeps {_bounds(log['age_s'], log['size_bytes'], log['keys'])}")
    lines += [f"  {name} is {behind:,} events behind" for name, behind in row["subscribers"].items()]
    return lines


def _bounds(age_s: float, size_bytes: int, keys: bool) -> str:
    bounds = [f"events of the last {age_s:,.0f} s"] * bool(age_s) + [f"about {_size(size_bytes)}"] * bool(size_bytes)
    bounds += ["the last event of each key"] * bool(keys)
    return " and ".join(bounds) or "everything"


def _size(count: float) -> str:
    power = min(int(math.log(count, 1_024)), 4) if count >= 1 else 0
    unit = ("B", "KiB", "MiB", "GiB", "TiB")[power]
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count / 1_024**power:,.1f} {unit}"


def _amount(text: str, units: dict[str, int], option: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]?)(?:i?[bB])?", text, flags=re.ASCII)
    unit = found[2] if found is not None and found[2] in units else found[2].upper() if found is not None else ""
    if found is None or unit not in units:
        named = ", ".join(f"5{one}" for one in units if one)
        raise BadInput(f"{option} {text!r} is none: write a number with its unit, as {named}")
    return int(float(found[1]) * units[unit])
