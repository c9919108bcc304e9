"""The command ``pluribus``: finds the verb, runs it, and turns errors into one sentence.

Exit codes: 0 when the verb did its work, 1 when it ran and its answer is "no" (a verb says so with ``typer.Exit(1)``),
2 when the input or the surroundings were wrong, 130 when interrupted. Whatever Pluribus raises on purpose is printed as
one sentence on standard error, ``pluribus: ...``; a traceback means a bug of ours.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

VERBS = {
    # The order is the order of `pluribus --help`.
    "demo": "The dealing room: four providers, twenty dealers; or two members that talk.",
    "pub": "Publish events.",
    "sub": "Watch events as they come.",
    "topics": "List, show, bound and empty topics.",
    "queue": "Send to message queues, receive, browse, and look after them.",
    "transactions": "List transactions that wait for a decision; commit or abort them.",
    "outbox": "Rows of PostgreSQL and messages, committed together.",
    "access": "Access lists: who may do what from outside of the bus.",
    "slots": "Software buses: slots, ports, routes.",
    "space": "Tuple spaces: write, read, take, watch, count.",
    "console": "Show software buses in a browser.",
    "objects": "List, write to, ask and watch objects that talk.",
    "chat": "Talk in threads, without a server.",
    "conversations": "List, show and export conversations.",
    "doctor": "Tell what works on this machine, and how to get the rest.",
    "keep": "Keep durable topics on disk, as a process of its own.",
    "keepers": "Look after keepers: who votes, lost ones replaced, backups.",
    "top": "Show what the members of a bus are doing.",
    "replay": "Run a trace file again and compare.",
    "sim": "Run a scenario in the simulator over many seeds, or replay one.",
    "pipeline": "Run jobs on Spark; check traces of runs.",
    "bench": "Measure, beside the limits and the peers.",
}

FIRST = """\
Pluribus: out of many processes, one bus. Try first:

  pluribus demo                        a dealing room at work, until Ctrl-C
  pluribus doctor                      what works on this machine

  pluribus sub 'hello/#'               in one terminal, and in a second one:
  pluribus pub hello/world '{"n": 1}'

  pluribus --help                      every command
  pluribus --install-completion        completes commands in your shell
"""
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def load_verb(name: str) -> Any:
    """Import the verb's module, and return its click command."""
    command = importlib.import_module(f"pluribus.cli.{name}").command
    if not isinstance(command, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name, help=command.__doc__ or VERBS[name])(command)
        command = single
    loaded = get_command(command)
    loaded.name = name
    return loaded


class LazyVerbs(TyperGroup):
    """Lists the verbs from ``VERBS`` alone and imports only the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return TyperCommand(cmd_name, help=VERBS[cmd_name]) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, load_verb(name) if name in VERBS else placeholder, rest


app = typer.Typer(cls=LazyVerbs, add_completion=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pluribus {version('pluribus')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Out of many processes, one bus."""
    if context.invoked_subcommand is None:
        typer.echo(FIRST)


def _complaint(error: BaseException) -> str | None:
    """The sentence for an error that the user can mend; None for a bug."""
    if isinstance(error, BaseExceptionGroup):
        # A task group wraps what its tasks raise. One complaint is enough, but a bug among them must show.
        sentences = [_complaint(inner) for inner in error.exceptions]
        return None if None in sentences else sentences[0]
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        help_command = f"{context.command_path if context else 'pluribus'} --help"
        return f"{error.format_message().rstrip('.')}; see '{help_command}'."
    from pluribus.core.errors import PluribusError

    return str(error) if isinstance(error, PluribusError) else None


def _complain(sentence: str) -> None:
    one_line = " ".join(sentence.split())
    typer.echo(f"pluribus: {one_line}", err=True)


def _spelled_out(arguments: list[str]) -> list[str]:
    """``--peers`` without names means all of them."""
    for at, word in enumerate(arguments):
        if word == "--peers" and (at + 1 == len(arguments) or arguments[at + 1].startswith("-")):
            return [*arguments[: at + 1], "all", *arguments[at + 1 :]]
    return arguments


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    given = _spelled_out(list(sys.argv[1:] if arguments is None else arguments))
    try:
        outcome = get_command(app).main(args=given, prog_name="pluribus", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as error:
        sentence = _complaint(error)
        if sentence is None:
            raise
        _complain(sentence)
        return EXIT_BAD_INPUT
    return outcome if type(outcome) is int else 0


def main() -> None:
    sys.exit(run())
