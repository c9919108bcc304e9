"""``pluribus replay``: repeats a traced run, byte for byte."""

from typing import Annotated

import typer

from pluribus.cli.output import JsonFlag, print_json


def command(
    trace: Annotated[str, typer.Argument(help="A file that connect(url, trace=FILE) wrote.")], json: JsonFlag = False
) -> None:
    """Feed a trace to a new stack of the same layers and compare everything that it sends."""
    from pluribus.runtime.loop.tracing import replay

    found = replay(trace)
    if json:
        print_json(found)
    else:
        typer.echo(f"{found['records']:,} records, and the same bytes sent: {found['stack']}")
