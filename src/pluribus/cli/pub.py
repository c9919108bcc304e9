"""``pluribus pub``: publish events from the command line."""

import asyncio
import json as json_module
import re
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput

FOUND_S = 3.0


def command(
    topic: Annotated[str, typer.Argument(help="Such as stocks/ibm/tick.")],
    body: Annotated[
        list[str] | None, typer.Argument(help="JSON, or else text; without any, each line of standard input.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, as often as you like.")] = None,
    retain: Annotated[bool, typer.Option("--retain", help="Keep it as the last value of its topic.")] = False,
    durable: Annotated[bool, typer.Option("--durable", help="Return when keepers have it on disk.")] = False,
    id: Annotated[
        str | None,
        typer.Option(help="With --durable: SESSION:NUMBER of the event; published again, it is there once."),
    ] = None,
    wait: Annotated[float, typer.Option(help="How long to look for others first, in seconds.", min=0.0)] = FOUND_S,
    json: JsonFlag = False,
) -> None:
    """Publish events under a topic. Exits with 1 if nobody else is on the bus; a client (client://) cannot tell."""
    from pluribus.pubsub.topics import checked_topic
    from pluribus.runtime.loop.running import run

    checked_topic(topic)
    headers = dict(map(_header, header or ()))
    identity = None if id is None else _id(id, durable)
    bodies = list(map(_value, body or _lines()))
    if identity is not None and len(bodies) != 1:
        raise BadInput(f"--id is the identity of one event, and here are {len(bodies)}: publish one at a time")
    options = {"headers": headers, "retain": retain, "durable": durable, "id": identity}
    found = run(_publish(url, topic, bodies, options, wait))
    if json:
        print_json(found)
    else:
        others = "" if found["members"] is None else f"; {found['members']} other members publish or subscribe"
        typer.echo(f"{found['published']} published under {topic}{others}")
    if found["members"] == 0 and not durable:
        raise typer.Exit(1)


async def _publish(url: str | None, topic: str, bodies: list[Any], options: dict[str, Any], wait: float) -> Any:
    from pluribus.runtime.bus import connect

    async with connect(url, name="pub") as bus:
        member = bus.url.scheme != "client"
        if member:
            with suppress(TimeoutError):
                await bus.wait_for(2, timeout=wait)
        for body in bodies:
            await bus.publish(topic, body, **options)
        await asyncio.sleep(0)
        members = len((await bus.pubsub.base()).group.view) - 1 if member else None
        return {"topic": topic, "published": len(bodies), "members": members}


def _id(text: str, durable: bool) -> tuple[int, int]:
    """Parse the identity of an event, as ``Uncertain`` prints it."""
    if not durable:
        raise BadInput("--id is for events that are durable, which may be published again: add --durable")
    found = re.fullmatch(r"(\d{1,19}):([1-9]\d{0,17})", text, flags=re.ASCII)
    if found is None:
        raise BadInput(f"--id {text!r} is none: write SESSION:NUMBER, two whole numbers, the second from 1 on")
    return int(found[1]), int(found[2])


def _lines() -> list[str]:
    try:
        return [line.rstrip("\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise BadInput(f"standard input is no text ({error}): publish bytes from a program, or encode them") from None


def _value(text: str) -> Any:
    try:
        return json_module.loads(text)
    except (ValueError, RecursionError):  # brackets in brackets, too many to be data
        return text


def _header(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadInput(f"--header {text!r} has no value: write NAME=VALUE")
    return name, _value(value)
