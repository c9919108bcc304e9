"""``pluribus keepers``: look after the keepers of a bus."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json

command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Keepers of durable topics: who votes, lost ones replaced, backups; see docs/durable.md.",
)
Url = Annotated[str | None, typer.Option(help="The bus, or client://…; by default $PLURIBUS_URL, then multicast.")]
Keeper = Annotated[str, typer.Argument(help="Its number, the beginning of that, or its member's name: see ls.")]


@command.callback()
def _root() -> None:
    pass


@command.command()
def ls(url: Url = None, json: JsonFlag = False) -> None:
    """List keepers: who leads, who votes, how far each is, who does not answer. Exits with 1 if nobody leads."""
    found = _asked(url, lambda keepers: keepers.ls())
    leads = any(one.leader for one in found)
    if json:
        from msgspec.structs import asdict

        told = [asdict(one) | {"machines": [asdict(machine) for machine in one.machines]} for one in found]
        print_json({"keepers": told, "leads": leads})
    else:
        _print(found)
    if not leads:
        raise typer.Exit(1)


@command.command()
def add(keeper: Keeper, url: Url = None, json: JsonFlag = False) -> None:
    """Make a keeper that runs a voter, when it has caught up."""
    _asked(url, lambda keepers: keepers.add(keeper))
    _told(json, f"{keeper} votes", added=keeper)


@command.command()
def remove(keeper: Keeper, url: Url = None, json: JsonFlag = False) -> None:
    """Take the vote of a keeper that is dead, or that is to be stopped. Refused if the others could not go on."""
    _asked(url, lambda keepers: keepers.remove(keeper))
    _told(json, f"{keeper} votes no more", removed=keeper)


@command.command()
def replace(old: Keeper, new: Keeper, url: Url = None, json: JsonFlag = False) -> None:
    """Let a new keeper vote in the place of one that is lost. Start the new one first."""
    _asked(url, lambda keepers: keepers.replace(old, new))
    _told(json, f"{new} votes in place of {old}", replaced=old, by=new)


@command.command()
def force(
    keeper: Annotated[str, typer.Argument(help="Whose log goes on; by default the most recent that is there.")] = "",
    url: Url = None,
    yes: Annotated[bool, typer.Option("--yes", help="Most voters are gone for good: do not ask.")] = False,
    json: JsonFlag = False,
) -> None:
    """The LAST RESORT, when most voters are gone for good: go on with the remaining keepers. Events that only the lost
    voters had are lost."""
    if not yes:
        typer.confirm("Are most voters gone for good, never to be started with their old stores again?", abort=True)
    forced = _asked(url, lambda keepers: keepers.force(keeper))
    if json:
        from msgspec.structs import asdict

        print_json(asdict(forced))
        return
    typer.echo(f"keeper {forced.keeper} goes on from row {forced.row:,}; {len(forced.follow)} others follow it")
    for refused in forced.refused:
        typer.echo(f"not followed by {refused}")


@command.command()
def backup(
    store: Annotated[str, typer.Argument(help="The file of a keeper, which may be running.")],
    path: Annotated[str, typer.Argument(help="Where to: a file that is not there yet.")],
    json: JsonFlag = False,
) -> None:
    """Copy a keeper's store while it runs, on the machine where it is."""
    from pluribus.runtime.keepers.backups import back_up

    made = back_up(store, path)
    _told(
        json,
        f"{made.path} has rows {made.start:,} to {made.end:,} of keeper {made.keeper}, {made.bytes:,} bytes",
        backup=made.path,
        bytes=made.bytes,
        keeper=made.keeper,
        start=made.start,
        end=made.end,
    )


@command.command()
def restore(
    backup: Annotated[str, typer.Argument(help="A backup; or a store that was set aside, or that nobody uses.")],
    store: Annotated[str, typer.Argument(help="The store to make: a file that is not there yet.")],
    json: JsonFlag = False,
) -> None:
    """Make a store of a backup, for a NEW keeper without a vote: start it with `pluribus keep --store`."""
    from pluribus.runtime.keepers.backups import restore as restored

    made = restored(backup, store)
    lost = f"; {made.missing:,} rows are missing, {made.given_up:,} were given up" * bool(made.missing or made.given_up)
    _told(
        json,
        f"{made.path} is a store for the new keeper {made.keeper}, with rows {made.start:,} to {made.end:,}{lost}",
        store=made.path,
        keeper=made.keeper,
        start=made.start,
        end=made.end,
        missing=made.missing,
        given_up=made.given_up,
    )


def _asked(url: str | None, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def asked() -> Any:
        async with connect(url, name="keepers") as bus:
            return await ask(bus.keepers)

    return run(asked())


def _told(json: bool, text: str, **document: Any) -> None:
    if json:
        print_json(document)
    else:
        typer.echo(text)


def _print(found: list[Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("keeper", "member", "votes", "is", "log", "rows", "epoch", "why", show_edge=False)
    for one in found:
        rows = f"{one.start:,}-{one.end:,}" if one.here else ""
        state = one.role if one.here else "NOT THERE"
        epoch = str(one.epoch) if one.here else ""
        table.add_row(
            one.keeper, escape(one.member), "yes" if one.votes else "", state, one.health, rows, epoch, escape(one.why)
        )
    console = Console()
    console.print(table)
    _print_machines(console, found)


def _print_machines(console: Any, found: list[Any]) -> None:
    """Print the machines that the leader hosts; a keeper that is alone leads."""
    from rich.markup import escape
    from rich.table import Table

    leading = next((one for one in found if one.role == "leader" and one.machines), None)
    if leading is None:
        return
    table = Table("machine", "kind", "version", "commands", "written", show_edge=False)
    for machine in leading.machines:
        written = f"{machine.turn_bytes:,} B"
        table.add_row(escape(machine.name), machine.kind, str(machine.version), f"{machine.commands:,}", written)
    console.print()
    console.print(table)
    age = "none in this run" if leading.snapshot_s < 0 else f"{leading.snapshot_s:,.0f} s ago"
    console.print(f"log: {leading.live_bytes:,} B live, {leading.dead_bytes:,} B dead; last snapshot {age}")
