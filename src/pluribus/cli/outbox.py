"""``pluribus outbox``: the tables of an outbox, and its forwarder."""

from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json

command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="The outbox: rows of PostgreSQL and messages, committed together; see docs/outbox.md.",
)
Dsn = Annotated[str, typer.Argument(help="The database, as psycopg takes it; '' takes it from PGHOST and the like.")]
Schema = Annotated[str, typer.Option(help="The schema with the tables.")]
Url = Annotated[str | None, typer.Option(help="The bus, or client://…; by default $PLURIBUS_URL, then multicast.")]
SCHEMA = "pluribus_outbox"


@command.callback()
def _root() -> None:
    pass


@command.command()
def create(dsn: Dsn, schema: Schema = SCHEMA, json: JsonFlag = False) -> None:
    """Make the tables, where they are missing."""
    from pluribus import outbox

    with _connected(dsn) as db:
        outbox.create(db, schema=schema)
    _tell(json, f"the tables are in the schema {schema}", schema=schema)


@command.command()
def forward(
    dsn: Dsn,
    url: Url = None,
    schema: Schema = SCHEMA,
    once: Annotated[bool, typer.Option("--once", help="Move what is there, and end.")] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Begin with this bus, although batches went to another.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Move messages to their queues, each once, until interrupted."""
    from pluribus.outbox import Forwarder
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def forwarded() -> int:
        async with connect(url, name="outbox") as bus:
            return await Forwarder(bus, dsn, schema=schema, anew=anew).run(once=once)

    count = run(forwarded())
    _tell(json, f"{count:,} forwarded", forwarded=count)


@command.command()
def status(dsn: Dsn, schema: Schema = SCHEMA, json: JsonFlag = False) -> None:
    """Show how many messages wait, for each queue, and how long the oldest."""
    from pluribus.outbox.tables import waiting

    with _connected(dsn) as db:
        found = waiting(db, schema=schema)
    if json:
        print_json({"schema": schema, "queues": found})
        return
    for one in found:
        typer.echo(f"{one['queue']}  {one['messages']:,} wait, the oldest for {one['oldest_s']:.1f} s")
    if not found:
        typer.echo("nothing waits")


def _connected(dsn: str) -> Any:
    from pluribus.core.errors import MissingExtra, Unavailable

    try:
        import psycopg
    except ImportError:
        raise MissingExtra("psycopg is not installed: pip install 'pluribus[postgres]'") from None
    try:
        return psycopg.connect(dsn, connect_timeout=10)
    except psycopg.OperationalError as error:
        raise Unavailable(f"the database cannot be opened: {error}") from None


def _tell(json: bool, sentence: str, **document: Any) -> None:
    if json:
        print_json(document)
    else:
        typer.echo(sentence)
