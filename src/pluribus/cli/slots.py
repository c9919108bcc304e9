"""``pluribus slots``: software buses from the command line. Each subcommand is a function here; what they say to a bus
is in ``runtime/styles/slots``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput

if TYPE_CHECKING:
    from pluribus.slots.language import Source

command = typer.Typer(add_completion=False, no_args_is_help=True, help="Software buses: slots, ports, routes.")

FileArgument = Annotated[Path, typer.Argument(help="An interconnection file.")]


def read_plan(file: Path) -> "Source":
    """The parsed file, mistakes raised."""
    from pluribus.slots.check import checked
    from pluribus.slots.language import parse

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise BadInput(f"the interconnection file {file} cannot be read ({reason}): name a file") from None
    source = parse(text, str(file))
    checked(source)
    return source


@command.command()
def check(file: FileArgument, json: JsonFlag = False) -> None:
    """Check an interconnection file. Exits with 1 if something in it is doubtful."""
    from pluribus.slots.check import problems

    source = read_plan(file)
    doubts = [f"{found.reason}; {found.remedy}" for found in problems(source.plan)]
    if json:
        slots, connections = len(source.plan.slots), len(source.plan.connections)
        print_json({"bus": source.plan.name, "slots": slots, "connections": connections, "doubts": doubts})
    else:
        typer.echo(f"{source.plan.name}: {len(source.plan.slots)} slots, {len(source.plan.connections)} connections")
        for doubt in doubts:
            typer.echo(f"doubt: {doubt}")
    if doubts:
        raise typer.Exit(1)


@command.command()
def draw(
    file: FileArgument,
    out: Annotated[Path, typer.Option(help="The SVG file to write.")] = Path("bus.svg"),
    json: JsonFlag = False,
) -> None:
    """Draw the graph of an interconnection file."""
    from pluribus.slots.drawing import draw as drawn

    source = read_plan(file)
    try:
        out.write_text(drawn(source.plan), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the picture {out} cannot be written ({error.strerror}): name a writable file") from None
    if json:
        print_json({"bus": source.plan.name, "out": str(out)})
    else:
        typer.echo(f"{source.plan.name} is drawn in {out}")


@command.command()
def key(json: JsonFlag = False) -> None:
    """Print the verifier of a passphrase, which is read from standard input, for the line 'role NAME "..."'."""
    import os

    from pluribus.slots.keys import SALT_BYTES, verifier

    passphrase = sys.stdin.readline().rstrip("\n")
    if not passphrase:
        raise BadInput("standard input has no passphrase: type one, or pipe it in")
    made = verifier(passphrase, os.urandom(SALT_BYTES))
    if json:
        print_json({"verifier": made})
    else:
        typer.echo(made)
