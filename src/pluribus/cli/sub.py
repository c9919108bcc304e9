"""``pluribus sub``: watch events as they come."""

import asyncio
from contextlib import suppress
from time import localtime as local
from time import monotonic, strftime
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput, Gap

FORMATS = ("text", "body", "topic")


def command(
    pattern: Annotated[str, typer.Argument(help="Topics, such as stocks/+/tick or #.")] = "#",
    url: Annotated[str | None, typer.Option(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")] = None,
    where: Annotated[str | None, typer.Option(help="A condition: \"price > 100 AND headers.region = 'eu'\".")] = None,
    guarantee: Annotated[str, typer.Option(help="best effort, reliable, fifo, causal or total.")] = "reliable",
    shared: Annotated[str | None, typer.Option(help="Share the events with others who give the same name.")] = None,
    start: Annotated[
        str | None, typer.Option(help="What keepers keep, from earliest, latest or an offset on; Spark's answers, too.")
    ] = None,
    durable: Annotated[str | None, typer.Option(help="A name under which keepers remember how far it came.")] = None,
    count: Annotated[int | None, typer.Option(help="End after so many events.", min=1)] = None,
    seconds: Annotated[float | None, typer.Option(help="End after so long.", min=0.0)] = None,
    format: Annotated[str, typer.Option(help="text, body or topic.")] = "text",
    rate: Annotated[bool, typer.Option("--rate", help="Print events and bytes a second instead.")] = False,
    json: JsonFlag = False,
) -> None:
    """Print events that match, as they come; --json prints one document a line. Exits with 1 if none came in time."""
    from pluribus.runtime.loop.running import run

    if format not in FORMATS:
        raise BadInput(f"--format {format} is none of {', '.join(FORMATS)}: choose one of them")
    options: dict[str, Any] = {"where": where}
    if start is None and durable is None:
        options |= {"guarantee": guarantee, "shared": shared, "slow": "tell" if rate else None}
    else:
        if rate or shared is not None or guarantee != "reliable":
            raise BadInput("--rate, --shared and --guarantee are for live events: leave out --start and --durable")
        options["start"] = int(start) if start is not None and start.isdecimal() else start or "latest"
        options["durable"] = durable
    got = run(_watch(url, pattern, options, count, seconds, "json" if json else format, rate))
    if seconds is not None and not got:
        raise typer.Exit(1)


async def _watch(
    url: str | None,
    pattern: str,
    options: dict[str, Any],
    count: int | None,
    seconds: float | None,
    format: str,
    rate: bool,
) -> int:
    from pluribus.runtime.bus import connect

    got = 0
    async with connect(url, name="sub") as bus:
        with suppress(TimeoutError):  # keepers that answer late count, too
            async with asyncio.timeout(seconds), bus.subscribe(pattern, **options) as events:
                if rate:
                    return await _rates(events, format == "json")
                async for event in events:
                    got += 1
                    _show(event, format)
                    if got == count:
                        break
    return got


async def _rates(events: Any, json: bool) -> int:
    """Print the rates, a line a second, until interrupted."""
    while True:
        since, got, size = monotonic(), 0, 0
        while (left := since + 1.0 - monotonic()) > 0:
            try:
                some = await events.receive_many(timeout=left)
            except TimeoutError:
                break
            except Gap:  # it is in what was missed
                continue
            got += len(some)
            size += sum(len(event.body) for event in some if isinstance(event.body, bytes | str))
        took = monotonic() - since
        found = {"events_per_s": round(got / took), "bytes_per_s": round(size / took), "missed": events.missed}
        if json:
            print_json(found)
        else:
            typer.echo(f"{found['events_per_s']:,} events a second, {found['missed']} missed")


def _show(event: Any, format: str) -> None:
    body = plain(event.body)
    match format:
        case "json":
            shown = {"topic": event.topic, "body": body, "sender": str(event.sender), "id": event.id[1]}
            print_json({**shown, "time": event.time, "headers": plain(dict(event.headers)), "retained": event.retained})
        case "body":
            print_json(body) if not isinstance(body, str) else typer.echo(body)
        case "topic":
            typer.echo(event.topic)
        case _:
            at = strftime("%H:%M:%S", local(event.time))
            marks = " (retained)" if event.retained else ""
            headers = "".join(f" {name}={value}" for name, value in event.headers.items())
            typer.echo(f"{at} {event.topic}{marks} {body if isinstance(body, str) else _text(body)}{headers}")


def _text(body: Any) -> str:
    import json

    return json.dumps(body, ensure_ascii=False)


def plain(body: Any) -> Any:
    """The body for JSON; for a type that is unknown here, its fields."""
    import msgspec

    from pluribus.wire.bodies import Opaque

    if isinstance(body, Opaque):
        body = msgspec.msgpack.decode(body.encoded)
    if isinstance(body, bytes):
        try:
            return body.decode()
        except UnicodeDecodeError:
            return body.hex()
    return msgspec.to_builtins(body, str_keys=True)
