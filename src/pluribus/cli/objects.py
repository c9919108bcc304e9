"""``pluribus objects``: the objects of a bus, listed, written to, asked and watched by a person who types KQML."""

import asyncio
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput, RemoteError

command = typer.Typer(add_completion=False, no_args_is_help=True, help="Objects that talk: list, send, ask, watch.")
Url = Annotated[str | None, typer.Option(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")]
Text = Annotated[str, typer.Argument(help='KQML, such as (ask-one :receiver printer :content "paper?").')]
To = Annotated[str | None, typer.Option(help="An id or an alias; the message's :receiver by default.")]
Found = Annotated[float, typer.Option(help="Seconds to look for others, and for the object.", min=0.0)]


@command.callback()
def _root() -> None:
    pass


@command.command()
def ls(
    url: Url = None,
    alias: Annotated[str | None, typer.Option(help="Only objects with this alias.")] = None,
    seconds: Found = 1.0,
    json: JsonFlag = False,
) -> None:
    """List the objects of a bus."""
    from pluribus.runtime.loop.running import run

    listed = run(_list(url, alias, seconds))
    if json:
        print_json({"objects": listed})
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("id", "type", "aliases", "interfaces", "process", show_edge=False)
    for row in listed:
        names = (row["id"], row["type"], " ".join(row["aliases"]), " ".join(row["interfaces"]), row["member"])
        table.add_row(*map(escape, names))
    Console().print(table)


@command.command()
def send(message: Text, url: Url = None, to: To = None, seconds: Found = 2.0, json: JsonFlag = False) -> None:
    """Send a message to an object, to the next in turn of an alias, or, if it is a broadcast, to all of them."""
    from pluribus.runtime.loop.running import run

    said, receiver = _addressed(message, to)
    run(_send(url, receiver, said, seconds))
    if json:
        print_json({"sent": str(said), "to": receiver})


@command.command()
def ask(
    message: Text,
    url: Url = None,
    to: To = None,
    seconds: Found = 2.0,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answer.", min=0.0)] = 10.0,
    json: JsonFlag = False,
) -> None:
    """Ask an object, and print its answer; a broadcast asks all of the alias. Exits with 1 if the answer is sorry or an
    error."""
    from pluribus.runtime.loop.running import run

    said, receiver = _addressed(message, to)
    answers = run(_ask(url, receiver, said, seconds, timeout))
    if json:
        print_json({"answers": [_plain(answer) for answer in answers]})
    else:
        for answer in answers:
            typer.echo(_shown(answer))
    if not answers or any(getattr(answer, "performative", "") in ("error", "sorry") for answer in answers):
        raise typer.Exit(1)


@command.command()
def watch(
    alias: Annotated[str, typer.Argument(help="The alias to take: the group to join.")],
    url: Url = None,
    count: Annotated[int | None, typer.Option(help="End after so many messages.", min=1)] = None,
    seconds: Annotated[float | None, typer.Option(help="End after so long.", min=0.0)] = None,
    json: JsonFlag = False,
) -> None:
    """Be an object with this alias, and print the messages that reach it. Exits with 1 if none came in time."""
    from pluribus.runtime.loop.running import run

    got = run(_watch(url, alias, count, seconds, json))
    if seconds is not None and not got:
        raise typer.Exit(1)


def _addressed(text: str, to: str | None) -> tuple[Any, str]:
    from pluribus.wire.kqml import parse, plain

    said = parse(text)
    receiver = to or plain(said.get("receiver", ""))
    if not isinstance(receiver, str) or not receiver:
        raise BadInput("nobody is named: write :receiver into the message, or give --to")
    return said, receiver


async def _list(url: str | None, alias: str | None, seconds: float) -> list[dict[str, Any]]:
    import msgspec

    from pluribus.runtime.bus import connect

    async with connect(url, name="objects") as bus:
        await _met(bus, seconds)
        return [msgspec.to_builtins(row) for row in await bus.directory.list() if alias is None or alias in row.aliases]


async def _met(bus: Any, seconds: float) -> None:
    """Wait until members have found each other, a moment after connecting; it is no error if there are none."""
    group = await bus._post.group()
    try:
        await group.wait_for(2, timeout=seconds)
    except TimeoutError:
        return


async def _send(url: str | None, receiver: str, said: Any, seconds: float) -> None:
    from pluribus.runtime.bus import connect

    async with connect(url, name="objects") as bus:
        await bus.directory.find(receiver, timeout=seconds)
        await bus.communicator.send(receiver, said)


async def _ask(url: str | None, receiver: str, said: Any, seconds: float, timeout: float) -> list[Any]:
    from pluribus.runtime.bus import connect
    from pluribus.wire.kqml import kqml

    async with connect(url, name="objects") as bus:
        await bus.directory.find(receiver, timeout=seconds)
        if said.performative == "broadcast":
            return list(await bus.communicator.ask_all(receiver, said, timeout=timeout))
        try:
            return [await bus.communicator.ask(receiver, said, timeout=timeout)]
        except RemoteError as error:
            performative = "sorry" if error.kind == "sorry" else "error"
            return [kqml(performative, comment=str(error))]


async def _watch(url: str | None, alias: str, count: int | None, seconds: float | None, json: bool) -> int:
    from pluribus.runtime.bus import connect

    async with connect(url, name="objects") as bus:
        got: asyncio.Queue[Any] = asyncio.Queue(1)

        class Watcher:
            async def say(self, message: Any) -> None:
                await got.put(message)

        await bus.directory.add(Watcher(), alias)
        seen = 0
        try:
            async with asyncio.timeout(seconds):
                while count is None or seen < count:
                    message = await got.get()
                    seen += 1
                    if json:
                        print_json(_plain(message))
                    else:
                        typer.echo(_shown(message))
        except TimeoutError:
            pass
        return seen


def _shown(message: Any) -> str:
    from pluribus.wire.kqml import Kqml

    if isinstance(message, Kqml):
        return str(message).encode("utf-8", "replace").decode()
    return f"object {message.body!r}"


def _plain(message: Any) -> Any:
    import msgspec

    from pluribus.wire.kqml import Kqml, as_mapping

    if isinstance(message, Kqml):
        return as_mapping(message)
    try:
        return {"object": msgspec.to_builtins(message.body)}
    except (TypeError, RecursionError):
        return {"object": repr(message.body)}
