"""``pluribus pipeline``: jobs and tools on Spark."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from pluribus.cli.backbone import add_verbs
from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput

command = typer.Typer(add_completion=False, no_args_is_help=True, help="Jobs on Spark, archives, and checks of traces.")
Master = Annotated[
    str, typer.Option(help="local[N], spark://HOST:PORT, yarn, k8s://https://HOST:PORT or sc://HOST:PORT.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show what Spark itself has to say.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="A setting of Spark, as spark.executor.instances=4.")]


@command.callback()
def _root() -> None:
    pass


@command.command()
def conformance(
    trace: Annotated[Path, typer.Argument(help="A folder of Parquet files: `pluribus sim SCENARIO --history DIR`.")],
    only: Annotated[str, typer.Option(help="Only these checks, as fifo,causal.")] = "",
    shown: Annotated[int, typer.Option(help="Offending events to show of each check.", min=1, max=100)] = 3,
    master: Master = "local[*]",
    conf: Conf = None,
    verbose: Verbose = False,
    json: JsonFlag = False,
) -> None:
    """Check the traces of runs for every promise of order and delivery. Exits with 1 when one was broken."""
    from pluribus.pipeline.conformance import check_names
    from pluribus.pipeline.conformance import conformance as check
    from pluribus.pipeline.traces import written_by_members

    names = [name for name in only.split(",") if name]
    check_names(names)
    settings = dict(_pair(one, "--conf") for one in conf or [])
    if not written_by_members(trace):
        _there(trace, "a folder of Parquet files; 'pluribus sim SCENARIO --history DIR' writes one")
    with _progress() as tell, _spark(master, "conformance", verbose, settings) as spark:
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
    conf: Conf = None,
    checkpoint: Annotated[
        str,
        typer.Option(help="Where queries remember how far they are, a folder or a URI; the same one resumes them."),
    ] = "",
    option: Annotated[list[str] | None, typer.Option("--set", help="An option for the job, as topic=stocks/#.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.", min=0)] = None,
    once: Annotated[bool, typer.Option("--once", help="Handle what is there now, and stop.")] = False,
    status: Annotated[
        str, typer.Option(help="Serve a page, /metrics for Prometheus and /status.json at HOST:PORT meanwhile.")
    ] = "",
    verbose: Verbose = False,
    json: JsonFlag = False,
) -> None:
    """Run the standing queries of a job; Ctrl-C ends them when the micro-batch under way is done."""
    from contextlib import ExitStack
    from tempfile import TemporaryDirectory

    from pluribus.pipeline.jobs import Job, check_job, stopped_by_signals
    from pluribus.pipeline.status import FILE, Status, serve

    options = dict(_pair(one) for one in option or [])
    settings = dict(_pair(one, "--conf") for one in conf or [])
    check_job(job)
    with ExitStack() as stack:
        folder = checkpoint or stack.enter_context(TemporaryDirectory())
        watched = Status()
        if status:
            typer.echo(f"status at {stack.enter_context(serve(watched, status))}", err=True)
        spark = stack.enter_context(_spark(master, f"pluribus {job.name}", verbose, settings))
        running = Job(spark, job, folder, options, status=watched)

        def note() -> None:
            if checkpoint and ":/" not in checkpoint:
                watched.write(Path(checkpoint) / FILE)

        def tell(progress: dict[str, Any]) -> None:
            _tell(progress)
            note()

        stack.callback(note)
        with stopped_by_signals(running):
            found = running.run(seconds=seconds, once=once, progress=tell)
    if json:
        print_json(found)
        return
    for name, metrics in found.get("queries", {"answer": found.get("answer")}).items():
        typer.echo(f"{name}: {metrics}")


@command.command()
def archive(
    url: Annotated[str, typer.Argument(help="client://HOST:PORT/BUS, a member that serves clients.")],
    topic: Annotated[str, typer.Argument(help="A topic, or a pattern as stocks/#.")],
    folder: Annotated[str, typer.Argument(help="Where the Parquet files go, by topic and day: a folder or a URI.")],
    gaps: Annotated[
        str, typer.Option(help="fail or skip, if retention removed events before they were read.")
    ] = "fail",
    retain: Annotated[
        float | None, typer.Option(help="Topics forget what is older than so many seconds, and archived.", min=0)
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.", min=0)] = None,
    once: Annotated[bool, typer.Option("--once", help="Archive what is there now, and stop.")] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    verbose: Verbose = False,
    json: JsonFlag = False,
) -> None:
    """Keep every event of durable topics as Parquet; started again, it goes on where it ended."""
    from pluribus.pipeline.archive import archive as standing
    from pluribus.pipeline.jobs import Job, stopped_by_signals

    _check_archive(url, topic, gaps)
    settings = dict(_pair(one, "--conf") for one in conf or [])
    with _spark(master, "pluribus archive", verbose, settings) as spark:
        writer = {"archive": standing(spark, url, topic, folder, retain_s=retain, gaps=gaps)}
        running = Job(spark, "archive", f"{folder.rstrip('/')}.checkpoint", {}, lambda *_: writer)
        with stopped_by_signals(running):
            found = running.run(seconds=seconds, once=once, progress=_tell)["queries"]["archive"]
    if json:
        print_json(found)
    else:
        typer.echo(f"{found['rows']:,} events in {found['batches']} batches, {found['seconds']} s")


@command.command()
def replay(
    folder: Annotated[str, typer.Argument(help="An archive: a folder or a URI.")],
    url: Annotated[str, typer.Argument(help="client://HOST:PORT/BUS, a member that serves clients.")],
    speed: Annotated[
        float, typer.Option(help="1 is the pace at which it happened, 0 as fast as it goes.", min=0)
    ] = 1.0,
    topic: Annotated[str, typer.Option(help="Only topics that match.")] = "#",
    start: Annotated[datetime | None, typer.Option(help="Events from this time on (UTC).")] = None,
    stop: Annotated[datetime | None, typer.Option(help="Events before this time (UTC).")] = None,
    prefix: Annotated[str, typer.Option(help="What stands before the topics that are played, as replay/.")] = "",
    now: Annotated[bool, typer.Option("--now", help="With the time of the replay instead of their own.")] = False,
    master: Annotated[
        str, typer.Option(help="Where Spark runs, if the archive is a URI that it must read.")
    ] = "local[*]",
    conf: Conf = None,
    json: JsonFlag = False,
) -> None:
    """Publish an archive again."""
    from contextlib import nullcontext

    from pluribus.pipeline.archive import replay as play
    from pluribus.pipeline.files import local_path
    from pluribus.pipeline.session import session

    _check_archive(url, topic)
    begin, end = (None if moment is None else moment.replace(tzinfo=UTC) for moment in (start, stop))
    settings = dict(_pair(one, "--conf") for one in conf or [])
    is_here = local_path(folder) is not None
    opened: Any = nullcontext() if is_here else session(master, "pluribus replay", **settings)
    with opened as spark:
        options: dict[str, Any] = {"speed": speed, "topic": topic, "prefix": prefix, "now": now, "spark": spark}
        found = play(folder, url, start=begin, stop=end, **options)._asdict()
    if json:
        print_json(found)
    else:
        typer.echo(f"{found['events']:,} events of {found['topics']:,} topics in {found['seconds']} s")


@command.command()
def status(
    where: Annotated[str, typer.Argument(help="A job's --checkpoint, a backbone's state, or the URL of --status.")],
    prometheus: Annotated[bool, typer.Option("--prometheus", help="As text for Prometheus.")] = False,
    json: JsonFlag = False,
) -> None:
    """What the standing queries of a job do: rows, rates, lag, state."""
    from pluribus.pipeline.status import fetched
    from pluribus.pipeline.status import prometheus as as_text

    found = fetched(where)
    if json:
        print_json(found)
    elif prometheus:
        typer.echo(as_text(found), nl=False)
    else:
        for name, told in found["queries"].items():
            lag = "" if told["lag"] is None else f", {told['lag']:,} behind"
            typer.echo(
                f"{name} {told['state']}: {told['rows']:,} rows in {told['batches']:,} batches, "
                f"{told['rows_a_second']:,.0f}/s{lag}, {told['late']:,} too late, {told['state_rows']:,} rows of state"
            )


@command.command()
def scale(
    events: Annotated[float, typer.Option(help="Events a day.", min=1)] = 1e9,
    topics: Annotated[int, typer.Option(min=1)] = 10_000,
    logs: Annotated[int, typer.Option(help="Logs, each with keepers of its own.", min=1, max=10_000)] = 16,
    body: Annotated[int, typer.Option(help="Bytes of an event.", min=1)] = 200,
    skew: Annotated[float, typer.Option(help="How unequal topics are: 0 not at all, 1 as words are.", min=0)] = 0.8,
    peak: Annotated[float, typer.Option(help="The busiest hour over the mean.", min=1)] = 4.0,
    days: Annotated[float, typer.Option(help="Days for which the logs keep events.", min=0.01)] = 3.0,
    log_rate: Annotated[
        float, typer.Option(help="Events a second of one leader: `pluribus bench log`.", min=1)
    ] = 60_000,
    core_rate: Annotated[
        float, typer.Option(help="Events a second of a core of Spark: `pluribus bench pipeline`.", min=1)
    ] = 250_000,
    simulate: Annotated[
        float, typer.Option(help="Simulate the keepers of the busiest log for so many seconds, too.", min=0)
    ] = 0.0,
    seed: int = 1,
    json: JsonFlag = False,
) -> None:
    """Compute what a load needs: logs, keepers, disks, cores, files; and play the busiest hour of the busiest log."""
    from pluribus.pipeline.scale import Load, Means, estimate

    load = Load(events, topics, body, skew, peak, days)
    found = estimate(load, Means(logs, log_events_s=log_rate, core_events_s=core_rate), seed, simulate)
    if json:
        print_json(found)
        return
    for part, told in found.items():
        rest = (
            ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in told.items())
            if isinstance(told, dict)
            else _shown(told)
        )
        typer.echo(f"{part.replace('_', ' ')}: {rest}")


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


@contextmanager
def _spark(master: str, app: str, verbose: bool, settings: dict[str, str]) -> Iterator[Any]:
    """A Spark session; Spark's own messages are shown only on request."""
    from pluribus.pipeline.session import VERBOSE, session

    if verbose:
        os.environ[VERBOSE] = "1"
    elif not master.startswith("sc://"):
        settings = {"spark.log.level": "ERROR", **settings}
    with session(master, app, **settings) as spark:
        yield spark


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line on standard error that names the present step; nothing if standard error is no terminal."""
    from rich.console import Console

    with Console(stderr=True).status("Spark starts") as status:
        yield lambda text: status.update(f"Spark {text}")


def _there(path: Path, wanted: str) -> None:
    if not path.exists():
        raise BadInput(f"{path} is not there: name {wanted}")


def _check_archive(url: str, topic: str, gaps: str = "fail") -> None:
    """Report a mistake before Spark is started."""
    from pluribus.core.url import parse_url
    from pluribus.pubsub.topics import levels_of

    if parse_url(url).scheme != "client":
        raise BadInput(f"{url} is no member that serves clients: write client://HOST:PORT/BUS")
    levels_of(topic)
    if gaps not in ("fail", "skip"):
        raise BadInput(f"--gaps {gaps} is none of fail, skip: choose one of them")


def _pair(text: str, option: str = "--set") -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadInput(f"{option} {text} has no value: write {option} name=value")
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


add_verbs(command)
