"""``pluribus topics``: what is advertised, what is retained, and what is published just now."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import Gap


def command(
    pattern: Annotated[str, typer.Argument(help="Topics, such as stocks/#.")] = "#",
    url: Annotated[str | None, typer.Option(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")] = None,
    seconds: Annotated[float, typer.Option(help="How long to listen.", min=0.1)] = 2.0,
    json: JsonFlag = False,
) -> None:
    """List the topics of a bus: advertised, retained, and those under which something was published meanwhile. What is
    advertised, only members are told: a client (client://) lists the rest."""
    from pluribus.runtime.loop.running import run

    found = run(_look(url, pattern, seconds))
    if json:
        print_json(found)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("topic", "advertised by", "type", "retained", "events a second", show_edge=False)
    for row in found["topics"]:
        by, kept = ", ".join(row["members"]), "yes" if row["retained"] else ""
        rate = f"{row['events_per_s']:,.1f}" if row["events_per_s"] else ""
        table.add_row(escape(row["topic"]), escape(by), escape(row["type"]), kept, rate)
    Console().print(table)


async def _look(url: str | None, pattern: str, seconds: float) -> dict[str, Any]:
    from pluribus.pubsub.topics import matches
    from pluribus.runtime.bus import connect

    async with connect(url, name="topics") as bus:
        member = bus.url.scheme != "client"
        kept: set[str] = set()
        async with bus.subscribe(pattern, slow="tell", retain=not member) as events:  # a client has no other way
            seen = await _seen(events, seconds, kept)
        members = None
        adverts: list[Any] = []
        if member:
            members = len((await bus.pubsub.base()).group.view) - 1
            adverts = await bus.topics(pattern)
            kept = {topic for topic in bus.pubsub.retained() if matches(pattern, topic)}
        rows: dict[str, dict[str, Any]] = {}

        def row(topic: str) -> dict[str, Any]:
            empty = {"topic": topic, "members": [], "type": "", "about": "", "retained": False, "events_per_s": 0.0}
            return rows.setdefault(topic, empty)

        for advert in adverts:
            found = row(advert.pattern)
            found["members"] += list(advert.members.values())
            found["type"], found["about"] = advert.type, advert.about
        for topic in kept:
            row(topic)["retained"] = True
        for topic, count in seen.items():
            row(topic)["events_per_s"] = round(count / seconds, 2)
        return {"members": members, "topics": [rows[topic] for topic in sorted(rows)]}


async def _seen(events: Any, seconds: float, kept: set[str]) -> Counter[str]:
    """How many events came under each topic; topics of last values go to ``kept``."""
    seen: Counter[str] = Counter()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                with suppress(Gap):  # on a busy bus some are missed: those that came are counted
                    events_now = await events.receive_many()
                    kept.update(event.topic for event in events_now if event.retained)
                    seen.update(event.topic for event in events_now if not event.retained)
    return seen
