"""``pluribus bench``: measurements, with peers and limits in the same run."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from pluribus.bench import BENCHES, bench
from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput

CHOICES = {
    "order": ("fifo", "causal", "total", "safe", "semantic", "all"),
    "senders": ("one", "all"),
    "network": ("loopback", "namespaces"),
}


def command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="; ".join(f"{known}: {about}" for known, about in BENCHES.items()))],
    quick: Annotated[bool, typer.Option("--quick", help="One short run: does it work, roughly how fast.")] = False,
    frames: Annotated[int, typer.Option(help="fuzz: how many frames.", min=1)] = 1_000_000,
    seed: Annotated[int, typer.Option(help="fuzz: the seed; adhoc: the first one.")] = 0,
    order: Annotated[str, typer.Option(help="group: fifo, causal, total, safe, semantic; all compares them.")] = "fifo",
    size: Annotated[
        int | None, typer.Option(help="group, tree, spread: bytes of a message.", min=1, max=1 << 20)
    ] = None,
    subscriptions: Annotated[int, typer.Option(help="match: how many; also a tenth, ten times.", min=1)] = 100_000,
    hosts: Annotated[int, typer.Option(help="tree: how many, each a network namespace.", min=2, max=200)] = 16,
    members: Annotated[
        int | None, typer.Option(help="group: how many, senders included (2); views: how many (10).", min=2, max=50)
    ] = None,
    senders: Annotated[str, typer.Option(help="group: one (not the sequencer) or all.")] = "one",
    sealed: Annotated[bool, typer.Option("--secret", help="group: on a bus with a secret.")] = False,
    typed: Annotated[bool, typer.Option("--typed", help="group: bodies are structs instead of bytes.")] = False,
    network: Annotated[str, typer.Option(help="group: loopback, or namespaces for 1,500-byte packets.")] = "loopback",
    peers: Annotated[
        str,
        typer.Option(
            help="group, pubsub, log, queue, objects: compare with these, as zmq,zenoh; without names, with all."
        ),
    ] = "",
    events: Annotated[int, typer.Option(help="log: events of the long log.", min=1_000)] = 10_000_000,
    depth: Annotated[bool, typer.Option("--depth", help="queue: what a long queue costs.")] = False,
    messages: Annotated[int, typer.Option(help="queue: messages of the long queue.", min=1_000)] = 5_000_000,
    sweep: Annotated[
        str,
        typer.Option(
            help="The same for more: group: members or size; views: members; spread: seconds, steps, bytes; "
            "adhoc: one axis alone, speed, density or members."
        ),
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="adhoc: more points, seeds and axes, overnight.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves of a sweep into this SVG file.")] = None,
    json: JsonFlag = False,
) -> None:
    """Measure, and compare with the goals. Exits with 1 when a goal is missed."""
    measure = bench(name)
    _check_options(context, name, measure)
    wanted: dict[str, Any] = {"quick": quick, "frames": frames, "seed": seed, "order": order, "hosts": hosts}
    wanted |= {option: value for option, value in (("size", size), ("members", members)) if value is not None}
    wanted |= {
        "subscriptions": subscriptions,
        "senders": senders,
        "sealed": sealed,
        "typed": typed,
        "network": network,
        "peers": peers,
        "events": events,
        "depth": depth,
        "messages": messages,
        "sweep": sweep,
        "full": full,
    }
    for option, choices in CHOICES.items():
        if wanted[option] not in choices:
            raise BadInput(f"--{option} {wanted[option]} is none of {', '.join(choices)}: choose one of them")
    if plot is not None:
        _check_picture(plot)
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"bench {name}") as status:
        outcome = measure(**wanted, progress=lambda text: status.update(f"{name}: {text}"))
    if plot is not None:
        _draw(plot, outcome)
    if json:
        print_json(outcome)
    else:
        _print_tables(outcome)
    if not all(goal["met"] for goal in outcome["goals"]):
        raise typer.Exit(1)


def _check_options(context: typer.Context, name: str, measure: Callable[..., Any]) -> None:
    """Refuse options of other benches: they would change nothing here."""
    taken = {*signature(measure).parameters, "name", "plot", "json"}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE" and parameter.name not in taken:
            raise BadInput(
                f"{parameter.opts[0]} changes nothing in the bench {name}: leave it away, or use another bench"
            )


def _check_picture(file: Path) -> None:
    """Report a file that cannot be written before anything is measured."""
    if file.is_dir() or not file.parent.is_dir():
        reason = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
        raise BadInput(f"the picture {file} cannot be written ({reason}): name a writable file")


def _draw(file: Path, outcome: dict[str, Any]) -> None:
    from pluribus.bench.plot import draw

    picture = draw(f"pluribus bench {outcome['bench']}", outcome.get("curves", []))
    try:
        file.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the picture {file} cannot be written ({error.strerror}): name a writable file") from None


def _print_tables(outcome: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    results = Table("case", "median", "unit", "min", "max", "runs", title=f"bench {outcome['bench']}", show_edge=False)
    for row in outcome["results"]:
        shown = (f"{row[key]:,.1f}" for key in ("value", "min", "max"))
        median, low, high = shown
        results.add_row(row["case"], median, row["unit"], low, high, str(row["runs"]))
    console.print(results)
    if not outcome["goals"]:
        return
    goals = Table("goal", "measured", "wanted", "met", show_edge=False)
    for row in outcome["goals"]:
        goals.add_row(row["goal"], f"{row['measured']:,.2f}", f"{row['wanted']:,}", "yes" if row["met"] else "NO")
    console.print(goals)
