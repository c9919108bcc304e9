"""``pluribus demo``: two members in two processes find each other and talk, and what happened is printed."""

from typing import Annotated

import typer

from pluribus.cli.output import JsonFlag, print_json


def command(
    url: Annotated[
        str | None, typer.Argument(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long they talk.", min=0.1)] = 5.0,
    stack: Annotated[
        str | None, typer.Option(help='Their layers, bottom first: "transport | presence | window | groups".')
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Start two members that exchange messages; exits with 1 if any was lost."""
    from pluribus.cli.talking import talk

    summary = talk(url, seconds, (lambda line: None) if json else typer.echo, stack)
    if json:
        print_json(summary)
    else:
        typer.echo(
            f"\n{summary['published']:,} published, {summary['delivered']:,} delivered, {summary['lost']} lost, "
            f"{summary['round_trip_us']:.0f} µs a round trip, {summary['rate']:,.0f} messages a second one way."
        )
    if summary["lost"]:
        raise typer.Exit(1)
