"""``pluribus demo``: the dealing room, with keepers, providers, dealers and Spark; or two members that talk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from rich.console import Group

    from pluribus.cli.dealing.room import Scene


def command(
    url: Annotated[
        str | None, typer.Argument(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="How long they deal (40, 0: until Ctrl-C), or talk (5).", min=0)
    ] = None,
    rate: Annotated[int, typer.Option(help="Updates a second and provider.", min=1)] = 500,
    two: Annotated[bool, typer.Option("--two", help="Only two members, that talk: round trips and rate.")] = False,
    stack: Annotated[
        str | None, typer.Option(help='Of two: their layers, bottom first: "transport | presence | window | groups".')
    ] = None,
    spark: Annotated[bool, typer.Option(help="Spark finds averages and turns in the prices, live.")] = True,
    patience: Annotated[
        float, typer.Option(help="Seconds that a closed room waits for Spark to come to the end of the log.", min=0)
    ] = 60.0,
    json: JsonFlag = False,
) -> None:
    """Open a dealing room: keepers, four providers, twenty dealers with their own filters, and Spark, which alerts
    them. Exits with 1 if an event or an alert was lost."""
    if two or stack is not None:
        summary = _talk(url, 5.0 if seconds is None else seconds, stack, json)
    else:
        summary = _deal(url, 40.0 if seconds is None else seconds, rate, spark, patience, json)
    if json:
        print_json(summary)
    if summary["lost"] or summary.get("unasked") or "ended too early" in summary.get("spark", ""):
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


def _deal(url: str | None, seconds: float, rate: int, spark: bool, patience: float, json: bool) -> dict[str, Any]:
    from pluribus.cli.dealing.room import Scene, room

    if json:
        return room(url, seconds, lambda scene: None, rate, spark, patience)
    from rich.console import Console
    from rich.live import Live

    with Live(_drawn(Scene()), console=Console(), auto_refresh=False) as live:
        summary = room(url, seconds, lambda scene: live.update(_drawn(scene), refresh=True), rate, spark, patience)
    typer.echo(
        f"\n{summary['providers']} providers published {summary['published']:,} prices, {summary['keepers']} keepers "
        f"have them on disk, {summary['dealers']} dealers got {summary['delivered']:,}, {summary['lost']} lost, "
        f"{summary['late_us_p50']:.0f} µs from provider to dealer.\n{summary['spark']}: "
        f"{summary['alerts']:,} alerts and {summary['averages']:,} averages back on the bus."
    )
    return summary


def _drawn(scene: Scene) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from pluribus.cli.dealing.players import dealers

    shown = Table(
        "dealer", "topics", "condition", "got", "last", title=f"dealing room, {scene.seconds:.1f} s", show_edge=False
    )
    got = {dealer: count for desk in scene.desks for dealer, count in desk["got"].items()}
    last = {dealer: text for desk in scene.desks for dealer, text in desk["last"].items()}
    for dealer in dealers():
        shown.add_row(
            dealer.name, dealer.pattern, dealer.where, f"{got.get(dealer.name, 0):,}", last.get(dealer.name, "")
        )
    alerts = sum(desk["alerts"] for desk in scene.desks)
    lines = [f"\n{scene.spark}; {alerts:,} alerts, {scene.averages:,} averages"]
    lines += [f"  {desk['desk']}: {desk['turn']}" for desk in scene.desks if desk["turn"]]
    return Group(shown, Text("\n".join(lines)))
