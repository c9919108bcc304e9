"""``pluribus transactions``: lists transactions that wait for a decision, and decides."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from pluribus.cli.output import JsonFlag, print_json

T = TypeVar("T")

command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Transactions: list prepared ones, commit or abort them by hand; see docs/transactions.md.",
)
Id = Annotated[int, typer.Argument(help="The number of the transaction, as `list` shows it.", min=1)]
Url = Annotated[str | None, typer.Option(help="The bus, or client://…; by default $PLURIBUS_URL, then multicast.")]


@command.callback()
def _root() -> None:
    pass


@command.command("list")
def list_(
    url: Url = None,
    all: Annotated[bool, typer.Option("--all", help="Also those that several processes act in.")] = False,
    json: JsonFlag = False,
) -> None:
    """List transactions that are prepared and wait for a decision."""
    found = _on_bus(url, lambda bus: bus.transactions(prepared=not all))
    if json:
        print_json({"transactions": [msgspec.to_builtins(one) for one in found]})
        return
    for one in found:
        typer.echo(f"{one.id}  {one.state}  {', '.join(one.machines)}")


@command.command()
def state(id: Id, url: Url = None, json: JsonFlag = False) -> None:
    """Show the state of a transaction."""
    _tell(json, id, _on_bus(url, lambda bus: bus.transaction_state(id)))


@command.command()
def commit(id: Id, url: Url = None, json: JsonFlag = False) -> None:
    """Commit a prepared transaction: everything in it is done."""
    _on_bus(url, lambda bus: bus.resolve_transaction(id, commit=True))
    _tell(json, id, "committed")


@command.command()
def abort(id: Id, url: Url = None, json: JsonFlag = False) -> None:
    """Abort a prepared transaction: nothing in it is done."""
    _on_bus(url, lambda bus: bus.resolve_transaction(id, commit=False))
    _tell(json, id, "aborted")


def _tell(json: bool, id: int, state: str) -> None:
    if json:
        print_json({"transaction": id, "state": state})
    else:
        typer.echo(f"{id}  {state}")


def _on_bus(url: str | None, ask: Callable[[Any], Awaitable[T]]) -> T:
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def asked() -> T:
        async with connect(url, name="transactions") as bus:
            return await ask(bus)

    return run(asked())
