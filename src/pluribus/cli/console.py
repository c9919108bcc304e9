"""``pluribus console``: the bus in a browser."""

from typing import Annotated

import typer

from pluribus.cli.output import JsonFlag, print_json

PORT = 8_111


def command(
    url: Annotated[str | None, typer.Option(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")] = None,
    port: Annotated[int, typer.Option(help="The port on 127.0.0.1.", min=1, max=65_535)] = PORT,
    stack: Annotated[str, typer.Option(help="As members of the bus have it.")] = "views",
    key: Annotated[
        str | None, typer.Option(help="The passphrase of a role on software buses.", envvar="PLURIBUS_KEY")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show software buses in a browser, on this machine alone, until Ctrl-C."""
    from pluribus.console.server import HOST, serve

    address = f"http://{HOST}:{port}"
    if json:
        print_json({"address": address})
    else:
        typer.echo(f"{address} shows the bus; Ctrl-C stops it")
    serve(url, port, stack, key)
