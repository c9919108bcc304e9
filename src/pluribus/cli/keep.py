"""``pluribus keep``: a keeper of durable topics, as a process of its own."""

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput
from pluribus.group.log import StateMachine
from pluribus.runtime.bus import Bus, connect
from pluribus.runtime.loop.running import run

READY_S = 15.0
"""Seconds after which a keeper that lacks the other founders says so; it goes on waiting for them."""


def command(
    store: Annotated[str, typer.Option(help="A file, made if it is not there, or postgresql://…")],
    url: Annotated[str | None, typer.Option(help="The bus; by default $PLURIBUS_URL, then multicast.")] = None,
    serve: Annotated[str | None, typer.Option(help="Also serve clients, at HOST:PORT.")] = None,
    name: Annotated[str | None, typer.Option(help="How others see this member.")] = None,
    learn: Annotated[bool, typer.Option("--learn", help="Keep a copy, but do not vote.")] = False,
    voters: Annotated[int, typer.Option(help="Begin a new log when so many that vote are there.", min=1)] = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="The store is gone: begin another, as a new keeper.")] = False,
    machine: Annotated[
        list[str] | None,
        typer.Option(help="Code of a machine of your own, as KIND=MODULE:CLASS; may be given several times."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Stop after so long; 0: when interrupted.", min=0)] = 0.0,
    json: JsonFlag = False,
) -> None:
    """Keep durable topics on disk. The first keeper of a bus begins the log; others join it and vote."""
    parent = Path(store).parent
    if "://" not in store and not parent.is_dir():
        raise BadInput(f"the store {store} cannot be made, because {parent} is no folder: make it first")
    options: dict[str, Any] = {"store": store, "votes": not learn, "voters": voters, "serve": serve, "name": name}
    options |= {"fresh": fresh, "machines": dict(_machine(given) for given in machine or [])}
    told = run(_keep(url, options, seconds, json))
    if json:
        print_json(told)
    else:
        typer.echo(f"stopped; {told['topics']} topics, {told['applied']} commands, epoch {told['epoch']}")


def _machine(given: str) -> tuple[str, Callable[[], StateMachine]]:
    """The kind and the class that KIND=MODULE:CLASS names. The module is looked up as Python does, and in the current
    folder."""
    kind, equals, where = given.partition("=")
    module, colon, name = where.partition(":")
    if not (kind and equals and module and colon and name):
        raise BadInput(f"--machine {given} is not KIND=MODULE:CLASS: write for instance counter=shop.machines:Counter")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), name, None)
    except ImportError as error:
        raise BadInput(f"--machine {given}: {module} cannot be imported: {error}") from None
    missing = [method for method in ("apply", "snapshot", "restore") if not callable(getattr(found, method, None))]
    if missing or not callable(found):
        raise BadInput(f"--machine {given}: {where} is no machine, it lacks {', '.join(missing) or 'a constructor'}")
    return kind, found


async def _keep(url: str | None, options: dict[str, Any], seconds: float, json: bool) -> dict[str, Any]:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # where the loop has no signals, an interrupt ends it all the same
            loop.add_signal_handler(number, stopped.set)
    async with connect(url, **options) as bus:
        keeper = bus.keeping.keeper
        assert keeper is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_S):
                while not (keeper.counted or stopped.is_set()):  # noqa: ASYNC110 - roles change without telling
                    await asyncio.sleep(0.02)
        _say(bus, keeper.stats(), json)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds or None):
                await stopped.wait()
        return keeper.stats()


def _say(bus: Bus, stats: dict[str, Any], json: bool) -> None:
    doors = [f"{host}:{port}" for host, port in (door.address for door in bus.doors)]
    if json:
        print_json({"bus": bus.url.bus, "keeper": stats["keeper"], "role": stats["role"], "serves": doors})
    else:
        served = f", serving clients at {doors[0]}" if doors else ""
        typer.echo(f"keeper {stats['keeper']} of {bus.url.text or bus.url.bus} is {stats['role']}{served}")
