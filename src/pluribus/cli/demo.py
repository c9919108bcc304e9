"""``pluribus demo``: the dealing room, with keepers, providers, dealers and Spark; or two members that talk."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from pluribus.cli.dealing.scene import Scene


def command(
    url: Annotated[
        str | None, typer.Argument(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="How long they deal, 0: until Ctrl-C, which is the default in a terminal; elsewhere about a minute, "
            "when Spark has answered. With --two: how long they talk (5).",
            min=0,
        ),
    ] = None,
    rate: Annotated[int, typer.Option(help="Updates a second and provider.", min=1)] = 250,
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
    them. In a terminal the keys k and p kill a keeper and a provider. Exits with 1 if an event or an alert was lost."""
    if two or stack is not None:
        summary = _talk(url, 5.0 if seconds is None else seconds, stack, json)
    else:
        summary = _deal(url, seconds, rate, spark, patience, json)
    if json:
        print_json(summary)
    wrong = summary["lost"] or summary.get("unasked") or not (summary.get("report") or {}).get("adds_up", True)
    if wrong or "ended too early" in summary.get("spark", ""):
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


def _deal(
    url: str | None, seconds: float | None, rate: int, spark: bool, patience: float, json: bool
) -> dict[str, Any]:
    from pluribus.cli.dealing import spark as dealing_spark
    from pluribus.cli.dealing.scene import Scene

    _check(url)
    # A loop that is late on a busy machine is no news to who watches, and its story would be written over the screen.
    scene = Scene(spark=dealing_spark.BEGINS) if spark else Scene()
    with _quiet(), _interrupts(scene):
        if json:
            from pluribus.cli.dealing.room import room

            return room(url, scene, seconds, rate, spark, patience)
        from pluribus.cli.dealing.screen import Lines, Screen

        terminal = sys.stdout.isatty()
        if terminal and seconds is None:
            seconds = 0.0
        scene.ends_by_itself = seconds != 0
        with Screen(scene) if terminal else Lines(scene, typer.echo):
            from pluribus.cli.dealing.room import room

            summary = room(url, scene, seconds, rate, spark, patience)
    typer.echo(_told(summary, shutil.get_terminal_size().columns if terminal else None))
    return summary


@contextmanager
def _quiet() -> Iterator[None]:
    log = logging.getLogger("pluribus")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _check(url: str | None) -> None:
    """Report a mistake in the URL before anything is started."""
    if url is not None:
        from pluribus.core.url import parse_url

        parse_url(url)


def _told(summary: dict[str, Any], width: int | None = None) -> str:
    """The summary, in lines of the width of a terminal."""
    if summary["uncounted"] and not summary["published"]:
        return "The room was closed before it was open: nothing was published."
    lines = [
        f"{summary['providers']} providers published {summary['published']:,} prices in {summary['seconds']:.0f} s, "
        f"{summary['keepers']} keepers have them on disk, {summary['dealers']} dealers got {summary['delivered']:,}: "
        f"{summary['lost']} lost, {summary['late_us_p50'] / 1e3:.1f} ms from provider to dealer."
    ]
    if summary["killed"]:
        lines.append(f"Killed meanwhile: {', '.join(summary['killed'])}.")
    if summary["uncounted"]:
        lines.append(f"Not counted, because they did not report in time: {', '.join(summary['uncounted'])}.")
    lines.append(
        f"{summary['spark']}: {summary['alerts']:,} alerts of {summary['turns']:,} turns and "
        f"{summary['averages']:,} averages back on the bus."
    )
    if report := summary["report"]:
        told = " + ".join(f"{report[name]:,} {name}" for name in ("good", "dead", "dropped", "late", "duplicate"))
        lines.append(f"Of the backbone: {report['read']:,} read = {told}{'' if report['adds_up'] else ': WRONG'}.")
    if width is not None:
        lines = [part for line in lines for part in textwrap.wrap(line, max(width, 20))]
    return "\n".join(lines)


@contextmanager
def _interrupts(scene: Scene) -> Iterator[None]:
    """In this block Ctrl-C closes the room, and a second Ctrl-C ends it at once."""

    def interrupted(number: int, frame: Any) -> None:
        scene.interrupts += 1
        if scene.interrupts > 1:
            raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, interrupted)
    except ValueError:  # not the main thread: there are no signals here
        yield
        return
    try:
        yield
    finally:
        with suppress(ValueError, TypeError):
            signal.signal(signal.SIGINT, before)
