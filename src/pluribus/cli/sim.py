"""``pluribus sim``: campaigns of a scenario over many seeds, and the replay of one of them."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput


def command(
    scenario: Annotated[str, typer.Argument(help="flood, disk and others; module:NAME is one of your own.")],
    seeds: Annotated[int, typer.Option(help="How many seeds, from --first on.", min=1)] = 100,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Replay this seed alone.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="With --seed: print everything that happens.")] = False,
    history: Annotated[
        Path | None, typer.Option(help="Keep what members did and saw in this folder, for `pipeline conformance`.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0 for one a core.", min=0)] = 0,
    json: JsonFlag = False,
) -> None:
    """Run a campaign in the simulator and print the seed of every failure. Exits with 1 when a promise was broken."""
    if ":" in scenario and "" not in sys.path:
        sys.path.insert(0, "")  # one of the user's own, in the folder where the command is given
    keep = None if history is None else _keep_in(history)
    if seed is not None:
        _replay(scenario, seed, trace, keep, json)
        return
    if trace:
        raise BadInput("--trace shows one seed: add --seed K")
    _campaign(scenario, range(first, first + seeds), jobs or os.cpu_count() or 1, keep, json)


def _keep_in(folder: Path) -> Any:
    from pluribus.pipeline.traces import KeepHistories, arrow

    arrow()  # said before anything is played
    return KeepHistories(folder)


def _replay(scenario: str, seed: int, trace: bool, keep: Any, json: bool) -> None:
    from pluribus.sim.machinery.campaign import play_seed

    outcome = play_seed(scenario, seed, typer.echo if trace else None, keep)
    found: dict[str, Any] = {
        "scenario": scenario,
        "seed": seed,
        "trace_hash": outcome.trace_hash,
        "events": outcome.events,
        "checkers": outcome.checks,
        "faults": outcome.faults,
        "failure": outcome.failure,
    }
    if json:
        print_json(found)
    else:
        for key, value in found.items():
            typer.echo(f"{key}: {value}")
    if outcome.failure:
        raise typer.Exit(1)


def _campaign(scenario: str, seeds: range, jobs: int, keep: Any, json: bool) -> None:
    from rich.console import Console
    from rich.progress import Progress

    from pluribus.sim.machinery.campaign import Outcome, campaign
    from pluribus.sim.scenarios import scenario as find

    find(scenario)  # a name that is none is said before a bar is drawn
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{scenario}, {len(seeds)} seeds", total=len(seeds))

        def progress(outcome: Outcome) -> None:
            bar.advance(task)
            if outcome.failure:
                reason = outcome.failure.strip().splitlines()[-1]
                bar.console.print(f"seed {outcome.seed}: {reason}", markup=False, highlight=False)

        found = campaign(scenario, seeds, jobs=jobs, progress=progress, keep=keep)
    if json:
        print_json(found)
    else:
        _print_summary(found)
    if found["violations"] or found["weak"]:
        raise typer.Exit(1)


def _print_summary(found: dict[str, Any]) -> None:
    typer.echo(f"{found['scenario']}: {found['seeds']} seeds, {found['events']:,} events in {found['seconds']} s")
    typer.echo("checks  " + ", ".join(f"{name} {count:,}" for name, count in found["checkers"].items()))
    typer.echo("faults  " + ", ".join(f"{name} {count:,}" for name, count in found["faults"].items()))
    for weakness in found["weak"]:
        typer.echo(f"weak    {weakness}")
    failures = " ".join(map(str, found["failures"]))
    typer.echo(f"failed  {failures} (replay one with --seed K --trace)" if failures else "no promise was broken")
