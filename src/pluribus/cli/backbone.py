"""``pluribus pipeline backbone`` and the verbs beside it: report, resend, backfill, picture, compact."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput

Config = Annotated[Path, typer.Argument(help="The configuration of a backbone, in TOML.")]
Master = Annotated[str, typer.Option(help="local[N], or the address of a cluster.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="A setting of Spark, as spark.executor.instances=4.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show what Spark itself has to say.")]
Reading = Annotated[str, typer.Option(help="Where Spark runs, if the state is a URI that it must read.")]
Url = Annotated[str, typer.Option(help="client://HOST:PORT/BUS, in the place of the one in the file.")]


def add_verbs(command: typer.Typer) -> None:
    for verb in (backbone, report, resend, backfill, picture, compact):
        command.command()(verb)


def backbone(
    config: Config,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.", min=0)] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Handle what is there now, stage after stage, and stop.")
    ] = False,
    begin: Annotated[
        bool,
        typer.Option(
            "--begin", help="With an empty state, though keepers remember another: all is judged and published again."
        ),
    ] = False,
    master: Master = "local[*]",
    url: Url = "",
    conf: Conf = None,
    verbose: Verbose = False,
    status: Annotated[
        str, typer.Option(help="Serve a page, /metrics for Prometheus and /status.json at HOST:PORT meanwhile.")
    ] = "",
    json: JsonFlag = False,
) -> None:
    """Run a backbone: durable topics to tables and answers. Exits with 1 if its report does not add up."""
    from contextlib import ExitStack

    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.backbone.running import Backbone
    from pluribus.pipeline.jobs import stopped_by_signals
    from pluribus.pipeline.session import VERBOSE, session
    from pluribus.pipeline.status import Status, serve

    configuration = load(config, url)
    settings = _settings(conf)
    _check_golds(configuration)
    if verbose:
        os.environ[VERBOSE] = "1"
    watched = Status()
    with ExitStack() as stack:
        if status:
            typer.echo(f"status at {stack.enter_context(serve(watched, status))}", err=True)
        spark = stack.enter_context(session(master, f"backbone {configuration.name}", **settings))
        running = Backbone(spark, configuration, status=watched, begin=begin)
        with stopped_by_signals(running):
            found = running.run(seconds=seconds, once=once, progress=_tell)
    if json:
        print_json(found)
    else:
        typer.echo(f"{_sum(found)} in {found['seconds']} s")
    if not found["adds_up"] or not found["total"]["adds_up"]:
        raise typer.Exit(1)


def report(
    config: Config, url: Url = "", master: Reading = "local[1]", conf: Conf = None, json: JsonFlag = False
) -> None:
    """Show how many events were written, dropped or are dead, by run and day; and how far the backbone is behind its
    topics."""
    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.backbone.reading import told

    configuration = load(config, url)
    with _reading(configuration.state, master, conf) as spark:
        found = told(configuration, spark)
    if json:
        print_json(found)
        return
    for row in found["days"]:
        typer.echo(f"{row['run']}  {row['day']}  {row['table']:<16} {_sum(row)}")
    typer.echo(f"all: {_sum(found)}; {found['behind']:,} events behind")
    for rule, count in found["rules"].items():
        typer.echo(f"    {rule}: {count:,}")


def resend(
    config: Config,
    rule: Annotated[str, typer.Option(help="Only events that broke this rule.")] = "",
    table: Annotated[str, typer.Option(help="Only events of this silver table.")] = "",
    keep_times: Annotated[bool, typer.Option("--keep-times", help="With their own times; most will be late.")] = False,
    url: Url = "",
    master: Reading = "local[1]",
    conf: Conf = None,
    json: JsonFlag = False,
) -> None:
    """Send dead events through the backbone again, each once, after the cause was corrected."""
    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.backbone.resending import resend as send

    configuration = load(config, url)
    with _reading(configuration.state, master, conf) as spark:
        found = send(configuration, rule=rule, table=table, keep_times=keep_times, spark=spark)
    if json:
        print_json(found)
    else:
        typer.echo(f"{found['resent'] + found['finished']:,} dead events were sent round again")


def backfill(
    config: Config,
    start: Annotated[datetime, typer.Option(help="Events from this time on (UTC).")],
    stop: Annotated[datetime, typer.Option(help="Events before this time (UTC).")],
    master: Master = "local[*]",
    url: Url = "",
    conf: Conf = None,
    json: JsonFlag = False,
) -> None:
    """Compute a range of time again from bronze, late events included; whole partitions are replaced."""
    from pluribus.pipeline.backbone.backfill import backfill as fill
    from pluribus.pipeline.backbone.backfill import checked_range
    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.session import session

    configuration = load(config, url)
    start, stop = checked_range(start, stop)
    with session(master, f"backfill {configuration.name}", **_settings(conf)) as spark:
        found = fill(spark, configuration, start, stop)
    if json:
        print_json(found)
    else:
        answers = ", ".join(f"{count:,} {name}" for name, count in found["gold"].items())
        typer.echo(f"{found['read']:,} events computed again: {answers}")


def picture(
    config: Config,
    out: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("flow.svg"),
    json: JsonFlag = False,
) -> None:
    """Draw the flow of a backbone from its configuration, as SVG."""
    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.backbone.picture import picture as draw

    text = draw(load(config, "client://127.0.0.1:1/none"))
    out.write_text(text, encoding="utf-8")
    if json:
        print_json({"picture": str(out), "bytes": len(text)})
    else:
        typer.echo(f"{out}: {len(text):,} bytes")


def compact(
    folder: Annotated[str, typer.Argument(help="An archive: a folder or a URI.")],
    files: Annotated[int, typer.Option(help="Partitions with so many small files or more.", min=2)] = 16,
    master: Master = "local[*]",
    conf: Conf = None,
    json: JsonFlag = False,
) -> None:
    """Put small files of an archive together."""
    from pluribus.pipeline.archive import check_archive
    from pluribus.pipeline.archive import compact as put_together
    from pluribus.pipeline.files import local_path
    from pluribus.pipeline.session import session

    if local_path(folder) is not None:
        check_archive(folder)
    with session(master, "compact", **_settings(conf)) as spark:
        fewer = put_together(spark, folder, files)
    if json:
        print_json({"fewer": fewer})
    else:
        typer.echo(f"{fewer:,} files fewer")


def _check_golds(configuration: Any) -> None:
    """Report a gold that cannot go on with its state before Spark is started, where the state is a local folder."""
    from pluribus.pipeline.backbone.groups import Golds
    from pluribus.pipeline.files import files_of, local_path

    if local_path(configuration.state) is not None:
        Golds(files_of(configuration.state)).groups(configuration)


def _settings(conf: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in conf or []:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise BadInput(f"--conf {text!r} has no value: write it as name=value")
        found[name] = value
    return found


@contextmanager
def _reading(state: str, master: str, conf: list[str] | None) -> Iterator[Any]:
    """A Spark session, if the state is at a URI that only Spark's Hadoop client can read; otherwise None."""
    from pluribus.pipeline.files import local_path
    from pluribus.pipeline.session import session

    settings = _settings(conf)
    if local_path(state) is not None:
        yield None
        return
    with session(master, "backbone", **settings) as spark:
        yield spark


def _sum(found: dict[str, Any]) -> str:
    parts = ("good", "dead", "dropped", "late", "duplicate")
    told = " + ".join(f"{found[name]:,} {name}" for name in parts)
    return f"{found['read']:,} read = {told}{'' if found['adds_up'] else ' DOES NOT ADD UP'}, {found['lost']:,} lost"


def _tell(progress: dict[str, Any]) -> None:
    typer.echo(
        f"{progress['query']} batch {progress['batch']}: {progress['rows']:,} rows in {progress['seconds']:.2f} s",
        err=True,
    )
