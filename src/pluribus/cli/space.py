"""``pluribus space``: write, read, take, watch and count tuples. Tuples and templates are JSON arrays.

In a template, ``"?"`` matches anything, and ``"?int"``, ``"?str"``, ``"?float"``, ``"?bool"`` values of that type.
"""

import asyncio
import json as json_
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput, Uncertain

command = typer.Typer(add_completion=False, help="Write, read, take, watch and count tuples; list spaces.")

Url = Annotated[str | None, typer.Option(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")]
Name = Annotated[str, typer.Argument(help="The space.")]
Value = Annotated[str, typer.Argument(help="A JSON array, for instance '[\"job\", 1]'.")]
Template = Annotated[str, typer.Argument(help='A JSON array; "?" matches anything, "?int" a whole number.')]
Some = Annotated[str | None, typer.Argument(help='A JSON array; "?" matches anything. Without it: everything.')]
Kind = Annotated[str, typer.Option(help="replicated, views or partitioned, as the others have it.")]
Durable = Annotated[bool, typer.Option("--durable", help="On the disks of the keepers.")]
Copies = Annotated[int, typer.Option(help="Of a partitioned space: as the others have it.", min=1, max=16)]
Key = Annotated[int, typer.Option(help="Of a partitioned space: the field that is hashed.", min=0)]
Where = Annotated[str, typer.Option(help="A condition over f0, f1, ..., for instance 'f1 > 100'.")]
Wait = Annotated[float | None, typer.Option(help="Seconds to wait; without it, for ever.", min=0.0)]
Lease = Annotated[float | None, typer.Option(help="Seconds for which it stays; without it, for ever.", min=0.001)]
WATCH_LEASE_S = 60.0
TYPES = {"?": ..., "?int": int, "?str": str, "?float": float, "?bool": bool}


def value_of(text: str) -> tuple[Any, ...]:
    try:
        found = json_.loads(text)
    except ValueError as error:
        raise BadInput(f"{text!r} is no JSON ({error}): write an array, for instance '[\"job\", 1]'") from None
    if not isinstance(found, list):
        raise BadInput(f"{text!r} is no array: write one, for instance '[\"job\", 1]'")
    return tuple(found)


def template_of(text: str) -> tuple[Any, ...]:
    return tuple(TYPES.get(field, field) if isinstance(field, str) else field for field in value_of(text))


class Opened(NamedTuple):
    """The kind and options with which other members have the space open."""

    name: str
    kind: str = "replicated"
    durable: bool = False
    copies: int = 1
    key: int = 0


def _run(url: str | None, how: Opened, work: Any) -> Any:
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def main() -> Any:
        async with connect(url, name="pluribus space") as bus:
            # A visitor keeps no part of the tuples: they would have to move twice. A client's member may.
            keeps = how.kind != "partitioned" or bus.url.scheme == "client"
            name, kind, durable, copies, key = how
            space = await bus.space(name, kind=kind, durable=durable, replica=keeps, copies=copies, key=key)
            return await work(space)

    return run(main())


def _plain(found: Any) -> Any:
    """The value for JSON: bytes, times and objects become text."""
    return json_.loads(json_.dumps(found, default=str))


def _show(found: Any, json: bool) -> None:
    if json:
        print_json({"tuple": _plain(found)})
    elif found is None:
        typer.echo("nothing matches")
    else:
        typer.echo(json_.dumps(found, default=str))
    if found is None:
        raise typer.Exit(1)


@command.command("write")
def write(
    name: Name,
    value: Value,
    lease: Lease = None,
    url: Url = None,
    kind: Kind = "replicated",
    durable: Durable = False,
    copies: Copies = 1,
    key: Key = 0,
    json: JsonFlag = False,
) -> None:
    """Write a tuple. It stays while a member has the space open; with --durable, for ever."""
    given = value_of(value)

    async def work(space: Any) -> None:
        await space.write(given, lease)
        await space.flush()

    _run(url, Opened(name, kind, durable, copies, key), work)
    if json:
        print_json({"written": given})


@command.command("read")
def read(
    name: Name,
    template: Template,
    where: Where = "",
    wait: Wait = None,
    url: Url = None,
    kind: Kind = "replicated",
    durable: Durable = False,
    copies: Copies = 1,
    key: Key = 0,
    json: JsonFlag = False,
) -> None:
    """Print a tuple that matches; it stays."""
    how = Opened(name, kind, durable, copies, key)
    _show(_run(url, how, lambda space: _found(space.read, template, where, wait)), json)


@command.command("take")
def take(
    name: Name,
    template: Template,
    where: Where = "",
    wait: Wait = None,
    url: Url = None,
    kind: Kind = "replicated",
    durable: Durable = False,
    copies: Copies = 1,
    key: Key = 0,
    json: JsonFlag = False,
) -> None:
    """Print a tuple that matches, and remove it."""
    how = Opened(name, kind, durable, copies, key)
    _show(_run(url, how, lambda space: _found(space.take, template, where, wait)), json)


async def _found(operation: Any, template: str, where: str, wait: float | None) -> Any:
    try:
        return await operation(template_of(template), where, timeout=wait)
    except TimeoutError:
        return None


@command.command("watch")
def watch(
    name: Name,
    template: Some = None,
    where: Where = "",
    count: Annotated[int | None, typer.Option(help="End after so many.", min=1)] = None,
    url: Url = None,
    kind: Kind = "replicated",
    durable: Durable = False,
    copies: Copies = 1,
    key: Key = 0,
    json: JsonFlag = False,
) -> None:
    """Print tuples that match as they are written, until interrupted."""

    async def work(space: Any) -> None:
        wanted = None if template is None else template_of(template)
        registration = await space.notify(wanted, where, lease=WATCH_LEASE_S)
        renewing = asyncio.create_task(_renewed(registration))
        try:
            await shown_of(registration)
        finally:
            renewing.cancel()
            await registration.cancel()

    async def shown_of(registration: Any) -> None:
        shown = 0
        async for event in registration:
            if event.missed:
                typer.echo(f"{event.missed} were missed", err=True)
            if event.gap:
                typer.echo("some may be lost with a member", err=True)
            if json:
                found = {"sequence": event.sequence, "tuple": _plain(event.value), "missed": event.missed}
                print_json({**found, "gap": event.gap})
            else:
                typer.echo(json_.dumps(event.value, default=str))
            shown += 1
            if shown == count:
                return

    _run(url, Opened(name, kind, durable, copies, key), work)


async def _renewed(registration: Any) -> None:
    """Renew the lease of a registration; a program that is killed leaves it for a minute."""
    while True:
        await asyncio.sleep(WATCH_LEASE_S / 3)
        with suppress(Uncertain):
            await registration.renew(WATCH_LEASE_S)


@command.command("count")
def count(
    name: Name,
    template: Some = None,
    where: Where = "",
    url: Url = None,
    kind: Kind = "replicated",
    durable: Durable = False,
    copies: Copies = 1,
    key: Key = 0,
    json: JsonFlag = False,
) -> None:
    """Print how many tuples match."""
    wanted = None if template is None else template_of(template)
    found = _run(url, Opened(name, kind, durable, copies, key), lambda space: space.count(wanted, where))
    if json:
        print_json({"space": name, "count": found})
    else:
        typer.echo(str(found))


@command.command("ls")
def ls(url: Url = None, json: JsonFlag = False) -> None:
    """List the spaces of a bus."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def main() -> Any:
        async with connect(url, name="pluribus space") as bus:
            await asyncio.sleep(0)
            return await bus.spaces()

    found = [{"name": one.name, "kind": one.kind, "durable": one.durable} for one in run(main())]
    if json:
        print_json({"spaces": found})
        return
    for one in found:
        typer.echo(f"{one['name']}  {one['kind']}{'  durable' if one['durable'] else ''}")
