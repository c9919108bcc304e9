"""``pluribus queue``: message queues from the command line."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json

command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Message queues: send, receive, browse, and look after them; see docs/queues.md.",
)
Name = Annotated[str, typer.Argument(help="The queue.")]
Url = Annotated[str | None, typer.Option(help="The bus, or client://…; by default $PLURIBUS_URL, then multicast.")]
Where = Annotated[str | None, typer.Option(help="Only messages whose properties match, such as \"region = 'eu'\".")]
Dead = Annotated[bool, typer.Option("--dead", help="Dead letters instead of messages.")]


@command.callback()
def _root() -> None:
    pass


@command.command()
def send(
    name: Name,
    bodies: Annotated[list[str] | None, typer.Argument(help="Each is a message: JSON, or else text.")] = None,
    url: Url = None,
    text: Annotated[bool, typer.Option("--text", help="Each is text as it stands, JSON too.")] = False,
    file: Annotated[
        list[Path] | None, typer.Option(exists=True, dir_okay=False, help="A file is a message, its bytes as they are.")
    ] = None,
    priority: Annotated[int, typer.Option(help="0 to 9, the highest first.")] = 4,
    ttl: Annotated[float | None, typer.Option(help="Seconds after which it goes.")] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds before which it is not handed out.")] = None,
    key: Annotated[str, typer.Option(help="Messages of one key are handed out in order, one at a time.")] = "",
    id: Annotated[str, typer.Option(help="What was sent lately with this id is not taken again.")] = "",
    property: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, for selectors; as often as you like.")] = None,
    correlation: Annotated[str, typer.Option(help="For the consumer: what it belongs to.")] = "",
    reply_to: Annotated[str, typer.Option(help="For the consumer: where an answer is wanted.")] = "",
    soon: Annotated[
        bool, typer.Option("--soon", help="Confirm all of them together, at the end: quicker for many.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Put messages into a queue; returns when they are on disk."""
    properties = dict(_pair(one) for one in property or [])
    messages: list[Any] = [one if text else _value(one) for one in bodies or []]
    messages += [one.read_bytes() for one in file or []]
    if not messages:
        from pluribus.core.errors import BadInput

        raise BadInput("there is nothing to send: give messages, or --file with the name of a file")

    async def sent(queue: Any) -> int:
        for body in messages:
            await queue.send(
                body,
                priority=priority,
                ttl=ttl,
                delay=delay,
                key=key,
                id=id,
                properties=properties,
                correlation=correlation,
                reply_to=reply_to,
                durable=not soon,
            )
        await queue.flush()
        return len(messages)

    count = _with_queue(url, name, sent)
    _told(json, f"{count} sent", queue=name, sent=count)


@command.command()
def receive(
    name: Name,
    url: Url = None,
    where: Where = None,
    count: Annotated[int, typer.Option(help="So many messages; 0 goes on until interrupted.", min=0)] = 1,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait for each; by default as long as it takes.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Take messages out of a queue and print them. Exits with 1 if one did not come in time."""

    async def received(queue: Any) -> int:
        found = 0
        while not count or found < count:
            async with queue.receive(where, timeout) as message:
                if message is None:
                    break
                found += 1
                _show(message, json)
        return found

    if _with_queue(url, name, received) < count:
        raise typer.Exit(1)


@command.command("ls")
def ls(url: Url = None, json: JsonFlag = False) -> None:
    """List the queues that keepers keep."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def listed() -> list[str]:
        async with connect(url, name="queue") as bus:
            return await bus.queues()

    names = run(listed())
    if json:
        print_json({"queues": names})
        return
    for name in names:
        typer.echo(name)


@command.command()
def browse(
    name: Name,
    url: Url = None,
    where: Where = None,
    dead: Dead = False,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 100,
    json: JsonFlag = False,
) -> None:
    """Show messages without taking them, in the order of sending."""

    async def browsed(queue: Any) -> None:
        async for message in queue.browse(where, dead=dead, limit=limit):
            _show(message, json, state=message.state, reason=message.reason)

    _with_queue(url, name, browsed, create=False)


@command.command()
def sql(
    statement: Annotated[str, typer.Argument(help="A SELECT over queues and durable topics.")],
    url: Url = None,
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    rows_max: Annotated[int, typer.Option(help="At most so many rows.", min=1)] = 10_000,
    timeout: Annotated[float, typer.Option(help="Seconds that it may take.", min=0.001)] = 30.0,
    json: JsonFlag = False,
) -> None:
    """Ask a SELECT: queues are tables, and so are durable topics (topics."a/b"). Nothing is taken."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def asked() -> Any:
        async with connect(url, name="queue") as bus:
            return await bus.sql(statement, rows_max=rows_max, timeout=timeout)

    found = run(asked())
    typer.echo(found.csv() if csv else found.json() if json else found.text(), nl=not csv)


@command.command()
def purge(
    name: Name,
    url: Url = None,
    dead: Dead = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: JsonFlag = False,
) -> None:
    """Remove every message that no consumer holds, or every dead letter."""
    if not yes and not json:
        typer.confirm(f"Remove all {'dead letters' if dead else 'messages'} of {name!r}?", abort=True)
    count = _with_queue(url, name, lambda queue: queue.purge(dead=dead, progress=_progress(json)), create=False)
    _told(json, f"{count:,} removed", queue=name, purged=count)


@command.command()
def redrive(
    name: Name,
    url: Url = None,
    limit: Annotated[int | None, typer.Option(help="At most so many, the oldest first.", min=1)] = None,
    json: JsonFlag = False,
) -> None:
    """Make dead letters messages again, untried."""
    count = _with_queue(url, name, lambda queue: queue.redrive(limit, progress=_progress(json)), create=False)
    _told(json, f"{count:,} redriven", queue=name, redriven=count)


@command.command()
def pause(
    name: Name,
    url: Url = None,
    off: Annotated[bool, typer.Option("--off", help="Go on.")] = False,
    json: JsonFlag = False,
) -> None:
    """Deliver nothing until `pause --off`; the queue still accepts messages."""
    _with_queue(url, name, lambda queue: queue.resume() if off else queue.pause(), create=False)
    _told(json, f"{name} {'goes on' if off else 'is paused'}", queue=name, paused=not off)


@command.command()
def transform(
    source: Annotated[str, typer.Argument(help="The queue that messages are taken from.")],
    target: Annotated[str, typer.Argument(help="The queue that they are sent to.")],
    chain: Annotated[str, typer.Argument(help='Steps, such as "csv > json"; see docs/transformations.md.')],
    url: Url = None,
    where: Where = None,
    functions: Annotated[
        list[str] | None, typer.Option(help="A module that registers functions of yours; as often as you like.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Move what is there, and end.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one message may take.", min=0.001)] = 30.0,
    json: JsonFlag = False,
) -> None:
    """Move messages from one queue to another, transformed, each once, until interrupted."""
    import sys
    from importlib import import_module

    from pluribus.core.errors import BadInput
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run
    from pluribus.transformations import Chain

    if functions and "" not in sys.path:
        sys.path.insert(0, "")  # modules are found where the command is given, as with `python -m`
    for module in functions or []:
        try:
            import_module(module)
        except ImportError as error:
            raise BadInput(f"--functions {module}: {error}") from None
    Chain.parse(chain).check_registered()

    async def moved() -> tuple[int, int]:
        async with connect(url, name="queue") as bus:
            transformer = bus.transformer(source, target, chain, where=where, timeout=timeout)
            await transformer.run(once=once)
            return transformer.transformed, transformer.failed

    transformed, failed = run(moved())
    sentence = f"{transformed:,} transformed, {failed:,} became dead letters"
    _told(json, sentence, source=source, target=target, transformed=transformed, failed=failed)


@command.command()
def configure(
    name: Name,
    url: Url = None,
    messages_max: Annotated[int | None, typer.Option(help="At most so many messages; 0: no limit.", min=0)] = None,
    bytes_max: Annotated[int | None, typer.Option(help="At most so many bytes; 0: no limit.", min=0)] = None,
    full: Annotated[str | None, typer.Option(help="What a sender finds when it is full: wait, refuse or dead.")] = None,
    tries: Annotated[
        int | None, typer.Option(help="A message that came back so often is a dead letter.", min=0)
    ] = None,
    backoff: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Seconds that a message waits when it comes back for the first time, and at most."),
    ] = None,
    window: Annotated[float | None, typer.Option(help="Seconds for which an id counts once.", min=0)] = None,
    lease: Annotated[float | None, typer.Option(help="Seconds for which a consumer may hold a message.", min=0)] = None,
    dead_max: Annotated[int | None, typer.Option(help="Dead letters that are kept.", min=0)] = None,
    dead_expired: Annotated[
        bool | None, typer.Option(help="Whether messages that outlive their time become dead letters.")
    ] = None,
    transform: Annotated[
        str | None, typer.Option(help='What is made of each message that arrives, such as "csv > json"; "": nothing.')
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Change settings of a queue; those that are not given stay. Shows all of them."""
    from msgspec.structs import asdict

    async def configured(queue: Any) -> dict[str, Any]:
        await queue.configure(
            messages_max=messages_max,
            bytes_max=bytes_max,
            full=full,
            tries=tries,
            backoff=backoff,
            window=window,
            lease=lease,
            dead_max=dead_max,
            dead_expired=dead_expired,
            transform=transform,
        )
        return asdict((await queue.stats()).state.settings)

    settings = _with_queue(url, name, configured)
    if json:
        print_json({"queue": name, "settings": settings})
        return
    for what, value in settings.items():
        typer.echo(f"{what:14} {value}")


@command.command()
def release(
    name: Name,
    reader: Annotated[str, typer.Argument(help="The option `reader` of the Spark query whose job is gone.")],
    url: Url = None,
    json: JsonFlag = False,
) -> None:
    """Give back the micro-batches that a Spark query has taken and will never settle."""
    from pluribus.pipeline.queue_source import open_batches, transaction_id
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def released() -> list[int]:
        async with connect(url, name="queue") as bus:
            numbers = await open_batches(bus, name, reader)
            for number in numbers:
                await bus.resolve_transaction(transaction_id(name, reader, number), commit=False)
            return numbers

    numbers = run(released())
    _told(json, f"{len(numbers)} micro-batches given back", queue=name, reader=reader, released=len(numbers))


@command.command()
def stats(
    name: Name,
    url: Url = None,
    seconds: Annotated[float, typer.Option(help="Rates are over this time.", min=0.05)] = 1.0,
    json: JsonFlag = False,
) -> None:
    """Show how deep a queue is, its rates, the age of its oldest message, its consumers."""
    from msgspec.structs import asdict

    async def asked(queue: Any) -> Any:
        await queue.stats()
        await asyncio.sleep(seconds)
        return await queue.stats()

    found = _with_queue(url, name, asked, create=False)
    state = asdict(found.state)
    settings = asdict(state.pop("settings"))
    state.pop("now_us")
    rates = {"sent_per_s": round(found.sent_rate, 1), "settled_per_s": round(found.settled_rate, 1)}
    if json:
        print_json({"queue": name, **state, **rates, "settings": settings})
        return
    shown = {"transform": settings["transform"]} if settings["transform"] else {}
    for what, value in {**state, **rates, **shown}.items():
        typer.echo(f"{what:14} {value:,}" if isinstance(value, int | float) else f"{what:14} {value}")


@asynccontextmanager
async def _opened(url: str | None, name: str, create: bool) -> AsyncIterator[Any]:
    from pluribus.runtime.bus import connect

    async with connect(url, name="queue") as bus:
        yield await bus.queue(name, create=create)


def _with_queue(url: str | None, name: str, work: Callable[[Any], Awaitable[Any]], *, create: bool = True) -> Any:
    """With ``create=False`` a mistyped name is an error, and makes no queue."""
    from pluribus.runtime.loop.running import run

    async def done() -> Any:
        async with _opened(url, name, create) as queue:
            return await work(queue)

    return run(done())


def _value(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text


def _pair(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        from pluribus.core.errors import BadInput

        raise BadInput(f"--property {text!r}: write NAME=VALUE")
    return name, _value(value)


def _plain(body: Any) -> Any:
    return body.decode(errors="replace") if isinstance(body, bytes) else body


def _show(message: Any, json: bool, **more: Any) -> None:
    import msgspec

    told = {
        "number": message.number,
        "body": msgspec.to_builtins(_plain(message.body)),
        "deliveries": message.deliveries,
        "priority": message.priority,
        "key": message.key,
        "id": message.id,
        "correlation": message.correlation,
        "reply_to": message.reply_to,
        "properties": dict(message.properties),
        **more,
    }
    if json:
        print_json(told)
        return
    notes = [f"{name}={value}" for name, value in {**told["properties"], **more, "key": message.key}.items() if value]
    typer.echo(f"{message.number:>8}  {_plain(message.body)!s}{'  (' + ', '.join(notes) + ')' if notes else ''}")


def _progress(json: bool) -> Callable[[int], object] | None:
    import sys

    if json or not sys.stderr.isatty():
        return None
    return lambda count: typer.echo(f"\r{count:,}", nl=False, err=True)


def _told(json: bool, sentence: str, **document: Any) -> None:
    if json:
        print_json(document)
    else:
        typer.echo(sentence)
