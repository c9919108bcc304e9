"""``pluribus conversations``: lists, shows and exports the conversations of a bus, without becoming a member."""

import asyncio
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput

command = typer.Typer(add_completion=False, help="List, show and export the conversations of a bus.")

Url = Annotated[str | None, typer.Option(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")]
Stack = Annotated[str, typer.Option(help="adhoc or views, as the others have it.")]
Seconds = Annotated[float, typer.Option(help="How long to listen.", min=0.1)]
Name = Annotated[str, typer.Argument(help="The conversation.")]


@command.command("ls")
def ls(url: Url = None, stack: Stack = "adhoc", seconds: Seconds = 2.0, json: JsonFlag = False) -> None:
    """List conversations with their members."""
    from pluribus.runtime.loop.running import run

    found = run(_listed(url, stack, seconds))
    if json:
        print_json({"conversations": found})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("conversation", "about", "members", show_edge=False)
    for row in found:
        table.add_row(safe(row["name"]), safe(row["description"]), safe(", ".join(row["members"])))
    Console().print(table)


@command.command("show")
def show(name: Name, url: Url = None, stack: Stack = "adhoc", seconds: Seconds = 2.0, json: JsonFlag = False) -> None:
    """Print the tree of a conversation."""
    from pluribus.runtime.loop.running import run

    rows = run(_read(url, stack, seconds, name))
    if json:
        print_json({"conversation": name, "messages": rows})
        return
    for row in rows:
        typer.echo(f"{'  ' * row['depth']}{plain(row['by'])}: {plain(row['body'] or '')}")


@command.command("export")
def export(name: Name, url: Url = None, stack: Stack = "adhoc", seconds: Seconds = 2.0, json: JsonFlag = False) -> None:
    """Print every message as one JSON document a line, each before its answers; with --json all in one document."""
    from pluribus.runtime.loop.running import run

    rows = run(_read(url, stack, seconds, name))
    if json:
        print_json({"conversation": name, "messages": rows})
        return
    for row in rows:
        print_json(row)


async def _listed(url: str | None, stack: str, seconds: float) -> list[dict[str, Any]]:
    from pluribus.runtime.bus import connect

    async with connect(url, name="conversations", stack=stack) as bus:
        lobby = await bus.conversations()
        await asyncio.sleep(seconds)
        found = [{"name": info.gid, "description": info.description, "members": info.members} for info in lobby]
    return sorted(found, key=lambda row: str(row["name"]))


async def _read(url: str | None, stack: str, seconds: float, name: str) -> list[dict[str, Any]]:
    """Read until no message has come for so many seconds."""
    from pluribus.runtime.bus import connect

    async with connect(url, name="conversations", stack=stack) as bus:
        lobby = await bus.conversations()
        await asyncio.sleep(seconds)
        if name not in [info.gid for info in lobby]:
            raise BadInput(f"nobody knows a conversation {name!r}: see `pluribus conversations ls`, or give --seconds")
        room = await lobby.look(name)
        known = -1
        while known < len(room.history()):
            known = len(room.history())
            await asyncio.sleep(seconds)
        return [
            {"id": list(entry.id), "parent": entry.parent, "by": entry.by, "at": entry.at, "body": entry.body}
            | {"depth": depth}
            for depth, entry in room.tree().walk()
        ]


def plain(text: str) -> str:
    """Make text of others safe for a terminal: remove what the terminal would take for a command."""
    return "".join(character if character.isprintable() else " " for character in text)


def safe(text: str) -> str:
    """The same for a terminal that understands markup."""
    from rich.markup import escape

    return escape(plain(text))
