"""``pluribus demo``: the dealing room, its providers and dealers in processes; or two members that talk."""

from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json


def command(
    url: Annotated[
        str | None, typer.Argument(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long they deal, or talk.", min=0.1)] = 5.0,
    rate: Annotated[int, typer.Option(help="Updates a second and provider.", min=1)] = 500,
    two: Annotated[bool, typer.Option("--two", help="Only two members, that talk: round trips and rate.")] = False,
    stack: Annotated[
        str | None, typer.Option(help='Of two: their layers, bottom first: "transport | presence | window | groups".')
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Open a dealing room: four providers, twenty dealers with their own filters. Exits with 1 if an event was lost."""
    summary = _talk(url, seconds, stack, json) if two or stack is not None else _deal(url, seconds, rate, json)
    if json:
        print_json(summary)
    if summary["lost"] or summary.get("unasked"):
        raise typer.Exit(1)


def _talk(url: str | None, seconds: float, stack: str | None, json: bool) -> dict[str, Any]:
    from pluribus.cli.talking import talk

    summary = talk(url, seconds, (lambda line: None) if json else typer.echo, stack)
    if not json:
        typer.echo(
            f"\n{summary['published']:,} published, {summary['delivered']:,} delivered, {summary['lost']} lost, "
            f"{summary['round_trip_us']:.0f} µs a round trip, {summary['rate']:,.0f} messages a second one way."
        )
    return summary


def _deal(url: str | None, seconds: float, rate: int, json: bool) -> dict[str, Any]:
    from pluribus.cli.dealing import dealers, room

    if json:
        return room(url, seconds, lambda desks, took: None, rate)
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    def table(desks: list[dict[str, Any]], took: float) -> Table:
        shown = Table(
            "dealer", "topics", "condition", "got", "last", title=f"dealing room, {took:.1f} s", show_edge=False
        )
        got = {dealer: count for desk in desks for dealer, count in desk["got"].items()}
        last = {dealer: text for desk in desks for dealer, text in desk["last"].items()}
        for dealer in dealers():
            shown.add_row(
                dealer.name, dealer.pattern, dealer.where, f"{got.get(dealer.name, 0):,}", last.get(dealer.name, "")
            )
        return shown

    console = Console()
    with Live(table([], 0.0), console=console, auto_refresh=False) as live:
        summary = room(url, seconds, lambda desks, took: live.update(table(desks, took), refresh=True), rate)
    typer.echo(
        f"\n{summary['providers']} providers published {summary['published']:,} prices, {summary['dealers']} dealers "
        f"got {summary['delivered']:,}, {summary['lost']} lost, {summary['alerts']:,} alerts, "
        f"{summary['late_us_p50']:.0f} µs from provider to dealer."
    )
    return summary
