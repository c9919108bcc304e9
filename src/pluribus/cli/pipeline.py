"""``pluribus pipeline``: what runs on Spark."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json

command = typer.Typer(add_completion=False, no_args_is_help=True, help="Jobs on Spark, archives, and checks of traces.")
Master = Annotated[str, typer.Option(help="local[N], spark://HOST:PORT or sc://HOST:PORT.")]


@command.callback()
def _root() -> None:
    pass


@command.command()
def conformance(
    trace: Annotated[Path, typer.Argument(help="A folder of Parquet files: `pluribus sim SCENARIO --history DIR`.")],
    only: Annotated[str, typer.Option(help="Only these checks, as fifo,causal.")] = "",
    shown: Annotated[int, typer.Option(help="Offending events to show of each check.", min=1, max=100)] = 3,
    master: Master = "local[*]",
    json: JsonFlag = False,
) -> None:
    """Check the traces of runs for every promise of order and delivery. Exits with 1 when one was broken."""
    from pluribus.pipeline.conformance import conformance as check
    from pluribus.pipeline.session import session

    with session(master, "conformance") as spark:
        found = check(spark, trace, [name for name in only.split(",") if name], shown)
    if json:
        print_json(found)
    else:
        _print_conformance(found)
    if found["breaches"]:
        raise typer.Exit(1)


def _print_conformance(found: dict[str, Any]) -> None:
    typer.echo(f"{found['deliveries']:,} deliveries of {found['runs']:,} runs, {found['breaches']:,} breaches")
    for name, part in found["checks"].items():
        verdict = f"{part['breaches']:,} BREACHES in {', '.join(part['runs'])}" if part["breaches"] else "kept"
        typer.echo(f"{name:<16} {part['checks']:>14,} checks  {verdict}")
        for event in part["first"]:
            where = ", ".join(f"{key} {value}" for key, value in event.items() if key != "said")
            typer.echo(f"    {event['said']}: {where}")
