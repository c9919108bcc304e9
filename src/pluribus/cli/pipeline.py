"""``pluribus pipeline``: what runs on Spark."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput

command = typer.Typer(add_completion=False, no_args_is_help=True, help="Jobs on Spark, archives, and checks of traces.")
Master = Annotated[str, typer.Option(help="local[N], spark://HOST:PORT or sc://HOST:PORT.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show what Spark itself has to say.")]


@command.callback()
def _root() -> None:
    pass


@command.command()
def conformance(
    trace: Annotated[Path, typer.Argument(help="A folder of Parquet files: `pluribus sim SCENARIO --history DIR`.")],
    only: Annotated[str, typer.Option(help="Only these checks, as fifo,causal.")] = "",
    shown: Annotated[int, typer.Option(help="Offending events to show of each check.", min=1, max=100)] = 3,
    master: Master = "local[*]",
    verbose: Verbose = False,
    json: JsonFlag = False,
) -> None:
    """Check the traces of runs for every promise of order and delivery. Exits with 1 when one was broken."""
    from pluribus.pipeline.conformance import check_names
    from pluribus.pipeline.conformance import conformance as check
    from pluribus.pipeline.traces import written_by_members

    names = [name for name in only.split(",") if name]
    check_names(names)
    if not written_by_members(trace):
        _there(trace, "a folder of Parquet files; 'pluribus sim SCENARIO --history DIR' writes one")
    with _progress() as tell, _spark(master, "conformance", verbose) as spark:
        found = check(spark, trace, names, shown, progress=tell)
    if json:
        print_json(found)
    else:
        _print_conformance(found)
    if found["breaches"]:
        raise typer.Exit(1)


@command.command()
def run(
    job: Annotated[Path, typer.Argument(help="A file of Python with a function job(spark, options).")],
    master: Master = "local[*]",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Where queries remember how far they are; the same folder resumes them.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option("--set", help="An option for the job, as topic=stocks/#.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.", min=0)] = None,
    once: Annotated[bool, typer.Option("--once", help="Handle what is there now, and stop.")] = False,
    verbose: Verbose = False,
    json: JsonFlag = False,
) -> None:
    """Run the standing queries of a job; Ctrl-C ends them when the micro-batch under way is done."""
    from tempfile import TemporaryDirectory

    from pluribus.pipeline.jobs import Job, stopped_by_signals

    options = dict(_pair(one) for one in option or [])
    _there(job, "a file of Python with a function job(spark, options)")
    with TemporaryDirectory() as folder, _spark(master, f"pluribus {job.name}", verbose) as spark:
        running = Job(spark, job, checkpoint or folder, options)
        with stopped_by_signals(running):
            found = running.run(seconds=seconds, once=once, progress=_tell)
    if json:
        print_json(found)
        return
    for name, metrics in found.get("queries", {"answer": found.get("answer")}).items():
        typer.echo(f"{name}: {metrics}")


@command.command()
def archive(
    url: Annotated[str, typer.Argument(help="client://HOST:PORT/BUS, a member that serves clients.")],
    topic: Annotated[str, typer.Argument(help="A topic, or a pattern as stocks/#.")],
    folder: Annotated[Path, typer.Argument(help="Where the Parquet files go, by topic and day.")],
    gaps: Annotated[
        str, typer.Option(help="fail or skip, if retention removed events before they were read.")
    ] = "fail",
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.", min=0)] = None,
    once: Annotated[bool, typer.Option("--once", help="Archive what is there now, and stop.")] = False,
    master: Master = "local[*]",
    verbose: Verbose = False,
    json: JsonFlag = False,
) -> None:
    """Keep every event of durable topics as Parquet; started again, it goes on where it ended."""
    from pluribus.pipeline.archive import archive as standing
    from pluribus.pipeline.jobs import Job, stopped_by_signals

    _check_archive(url, topic, gaps)
    with _spark(master, "pluribus archive", verbose) as spark:
        writer = {"archive": standing(spark, url, topic, folder, gaps=gaps)}
        running = Job(spark, "archive", folder.with_name(f"{folder.name}.checkpoint"), {}, lambda *_: writer)
        with stopped_by_signals(running):
            found = running.run(seconds=seconds, once=once, progress=_tell)["queries"]["archive"]
    if json:
        print_json(found)
    else:
        typer.echo(f"{found['rows']:,} events in {found['batches']} batches, {found['seconds']} s")


@command.command()
def replay(
    folder: Annotated[Path, typer.Argument(help="An archive.")],
    url: Annotated[str, typer.Argument(help="client://HOST:PORT/BUS, a member that serves clients.")],
    speed: Annotated[
        float, typer.Option(help="1 is the pace at which it happened, 0 as fast as it goes.", min=0)
    ] = 1.0,
    topic: Annotated[str, typer.Option(help="Only topics that match.")] = "#",
    start: Annotated[datetime | None, typer.Option(help="Events from this time on (UTC).")] = None,
    stop: Annotated[datetime | None, typer.Option(help="Events before this time (UTC).")] = None,
    prefix: Annotated[str, typer.Option(help="What stands before the topics that are played, as replay/.")] = "",
    now: Annotated[bool, typer.Option("--now", help="With the time of the replay instead of their own.")] = False,
    json: JsonFlag = False,
) -> None:
    """Publish an archive again."""
    from pluribus.pipeline.archive import replay as play

    moments = [None if moment is None else moment.replace(tzinfo=UTC) for moment in (start, stop)]
    found = play(
        folder, url, speed=speed, topic=topic, start=moments[0], stop=moments[1], prefix=prefix, now=now
    )._asdict()
    if json:
        print_json(found)
    else:
        typer.echo(f"{found['events']:,} events of {found['topics']:,} topics in {found['seconds']} s")


@contextmanager
def _spark(master: str, app: str, verbose: bool) -> Iterator[Any]:
    """A session; what Spark itself says is kept from people unless they ask."""
    from pluribus.pipeline.session import VERBOSE, session

    if verbose:
        os.environ[VERBOSE] = "1"
    elif master.startswith(("local", "spark://")):
        with session(master, app, spark_log_level="ERROR") as spark:
            yield spark
        return
    with session(master, app) as spark:
        yield spark


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line on standard error that says what is done now; nothing where nobody looks."""
    from rich.console import Console

    with Console(stderr=True).status("Spark starts") as status:
        yield lambda text: status.update(f"Spark {text}")


def _there(path: Path, wanted: str) -> None:
    if not path.exists():
        raise BadInput(f"{path} is not there: name {wanted}")


def _check_archive(url: str, topic: str, gaps: str) -> None:
    """A mistake is told before Spark is started."""
    from pluribus.core.url import parse_url
    from pluribus.pubsub.topics import levels_of

    if parse_url(url).scheme != "client":
        raise BadInput(f"{url} is no member that serves clients: write client://HOST:PORT/BUS")
    levels_of(topic)
    if gaps not in ("fail", "skip"):
        raise BadInput(f"--gaps {gaps} is none of fail, skip: choose one of them")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"--set {text} has no value: write --set name=value")
    return name, value


def _tell(progress: dict[str, Any]) -> None:
    rate = progress["rows"] / progress["seconds"] if progress["seconds"] else 0.0
    late = f", {progress['late']:,} too late" if progress["late"] else ""
    typer.echo(
        f"{progress['query']} batch {progress['batch']}: {progress['rows']:,} rows in {progress['seconds']:.2f} s, "
        f"{rate:,.0f}/s{late}",
        err=True,
    )


def _print_conformance(found: dict[str, Any]) -> None:
    typer.echo(f"{found['deliveries']:,} deliveries of {found['runs']:,} runs, {found['breaches']:,} breaches")
    for name, part in found["checks"].items():
        verdict = f"{part['breaches']:,} BREACHES in {', '.join(part['runs'])}" if part["breaches"] else "kept"
        typer.echo(f"{name:<16} {part['checks']:>14,} checks  {verdict}")
        for event in part["first"]:
            where = ", ".join(f"{key} {value}" for key, value in event.items() if key != "said")
            typer.echo(f"    {event['said']}: {where}")
