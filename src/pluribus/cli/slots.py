"""``pluribus slots``: software buses from the command line. The requests to a bus are in ``runtime/styles/slots``."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput

if TYPE_CHECKING:
    from pluribus.runtime.styles.slots.communications import BusShown
    from pluribus.runtime.styles.slots.hosts import SlotsHost
    from pluribus.slots.language import Source

command = typer.Typer(add_completion=False, no_args_is_help=True, help="Software buses: slots, ports, routes.")

FileArgument = Annotated[Path, typer.Argument(help="An interconnection file.")]
BusArgument = Annotated[str, typer.Argument(help="The software bus, as `pluribus slots ls` lists it.")]
Url = Annotated[str | None, typer.Option(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")]
Stack = Annotated[str, typer.Option(help="best-effort is enough with a router; replicas need views.")]
Key = Annotated[
    str | None,
    typer.Option(help="The passphrase of a role; $PLURIBUS_KEY is not shown to others.", envvar="PLURIBUS_KEY"),
]
On = Annotated[str | None, typer.Option(help="The software bus; not needed if there is only one.")]
Seconds = Annotated[float | None, typer.Option(help="Stop after so many seconds; else at Ctrl-C.", min=0.1)]


def read_plan(file: Path) -> "Source":
    """Parse the file; raises its mistakes."""
    from pluribus.slots.check import checked
    from pluribus.slots.language import parse

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise BadInput(f"the interconnection file {file} cannot be read ({reason}): name a file") from None
    source = parse(text, str(file))
    checked(source)
    return source


@command.command()
def check(file: FileArgument, json: JsonFlag = False) -> None:
    """Check an interconnection file. Exits with 1 if something in it is doubtful."""
    from pluribus.slots.check import problems

    source = read_plan(file)
    doubts = [f"{found.reason}; {found.remedy}" for found in problems(source.plan)]
    if json:
        slots, connections = len(source.plan.slots), len(source.plan.connections)
        print_json({"bus": source.plan.name, "slots": slots, "connections": connections, "doubts": doubts})
    else:
        typer.echo(f"{source.plan.name}: {len(source.plan.slots)} slots, {len(source.plan.connections)} connections")
        for doubt in doubts:
            typer.echo(f"doubt: {doubt}")
    if doubts:
        raise typer.Exit(1)


@command.command()
def draw(
    file: FileArgument,
    out: Annotated[Path, typer.Option(help="The SVG file to write.")] = Path("bus.svg"),
    json: JsonFlag = False,
) -> None:
    """Draw the graph of an interconnection file."""
    from pluribus.slots.drawing import draw as drawn

    source = read_plan(file)
    try:
        out.write_text(drawn(source.plan), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the picture {out} cannot be written ({error.strerror}): name a writable file") from None
    if json:
        print_json({"bus": source.plan.name, "out": str(out)})
    else:
        typer.echo(f"{source.plan.name} is drawn in {out}")


@command.command()
def key(json: JsonFlag = False) -> None:
    """Print the verifier of a passphrase, which is read from standard input, for the line 'role NAME "..."'."""
    import os

    from pluribus.slots.keys import SALT_BYTES, verifier

    passphrase = sys.stdin.readline().rstrip("\n")
    if not passphrase:
        raise BadInput("standard input has no passphrase: type one, or pipe it in")
    made = verifier(passphrase, os.urandom(SALT_BYTES))
    if json:
        print_json({"verifier": made})
    else:
        typer.echo(made)


@command.command()
def ls(url: Url = None, stack: Stack = "views", json: JsonFlag = False) -> None:
    """List the software buses that are advertised. Exits with 1 if there is none."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def look() -> list[Any]:
        async with connect(url, name="slots", stack=stack) as bus:
            return await (await bus.communications()).buses(listen_s=1.5)

    found = run(look())
    if json:
        rows = [
            {"bus": a.bus, "by": a.by, "waiting": a.waiting, "slots": a.slots, "occupants": a.occupants} for a in found
        ]
        print_json({"buses": rows})
    else:
        for advert in found:
            state = "waiting" if advert.waiting else "running"
            typer.echo(f"{advert.bus}: {state}, {advert.occupants} occupants of {advert.slots} slots, {advert.by}")
    if not found:
        raise typer.Exit(1)


@command.command()
def show(
    bus: BusArgument,
    url: Url = None,
    stack: Stack = "views",
    key: Key = None,
    file: Annotated[bool, typer.Option("--file", help="Print it as an interconnection file.")] = False,
    out: Annotated[Path | None, typer.Option(help="Draw it into this SVG file.")] = None,
    json: JsonFlag = False,
) -> None:
    """Show slots, occupants and routes of a bus as they are now."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run
    from pluribus.slots.drawing import draw as drawn
    from pluribus.slots.language import printed
    from pluribus.slots.plan import ROUTER

    async def look() -> "BusShown":
        async with connect(url, name="slots", stack=stack) as member:
            return await (await member.communications()).show(bus, key=key)

    found = run(look())
    if out is not None:
        counts = {slot.name: len(found.occupants(slot.name)) for slot in found.plan.slots}
        out.write_text(drawn(found.plan, counts), encoding="utf-8")
    if json:
        print_json(shown(found))
    elif file:
        typer.echo(printed(found.plan), nl=False)
    else:
        typer.echo(f"{found.name}: {'running' if found.running else 'waiting for ' + ', '.join(found.waiting)}")
        if found.router:
            typer.echo(f"  {ROUTER} required 1..1: {found.router}")
        for slot in found.plan.slots:
            who = ", ".join(f"{seat.name} ({seat.number})" for seat in found.occupants(slot.name)) or "empty"
            typer.echo(f"  {slot.name} {slot.kind} {slot.least}..{slot.greatest}: {who}")
        for connection in found.plan.connections:
            typer.echo(f"  {connection} capacity {connection.capacity} ttl {connection.ttl_s:g} s")


def shown(found: "BusShown") -> dict[str, Any]:
    """A bus as JSON."""
    return {
        "bus": found.name,
        "by": found.by,
        "router": found.router,
        "waiting": list(found.waiting),
        "slots": [
            {
                "slot": slot.name,
                "kind": slot.kind,
                "least": slot.least,
                "greatest": slot.greatest,
                "program": slot.program,
                "about": slot.about,
                "ports": [{"port": port.name, "kind": port.kind, "type": port.type} for port in slot.ports],
                "occupants": [{"name": seat.name, "ticket": seat.number} for seat in found.occupants(slot.name)],
            }
            for slot in found.plan.slots
        ],
        "routes": [
            {"source": str(c.source), "target": str(c.target), "capacity": c.capacity, "ttl_s": c.ttl_s}
            for c in found.plan.connections
        ],
    }


@command.command()
def up(
    file: FileArgument,
    url: Url = None,
    stack: Stack = "views",
    by: Annotated[str, typer.Option(help="router, replica (no router at all) or central (for comparison).")] = "router",
    store: Annotated[Path | None, typer.Option(help="A file that keeps the router's map.")] = None,
    answers: Annotated[str, typer.Option(help="The hearers of answers about routes: asker or all.")] = "asker",
    dump: Annotated[bool, typer.Option("--dump", help="Print every message that this process says or hears.")] = False,
    seconds: Seconds = None,
    json: JsonFlag = False,
) -> None:
    """Start a software bus from its file, and hold it until Ctrl-C."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    source = read_plan(file)

    async def hold() -> None:
        async with connect(url, name=f"{source.plan.name}-{by}", stack=stack) as bus:
            host = await bus.slots(source, by=by, store=store, answers=answers)
            await _held(host, dump, seconds, json)

    with suppress(KeyboardInterrupt):
        run(hold())


@command.command()
def move(
    bus: BusArgument,
    url: Url = None,
    stack: Stack = "views",
    key: Key = None,
    store: Annotated[Path | None, typer.Option(help="A file that keeps the router's map here.")] = None,
    seconds: Seconds = None,
    json: JsonFlag = False,
) -> None:
    """Move the router of a bus into this process, and hold it until Ctrl-C. Messages flow meanwhile."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def hold() -> None:
        async with connect(url, name=f"{bus}-router", stack=stack) as member:
            state = await (await member.communications()).take_over(bus, key=key)
            await _held(await member.slots(state, store=store), False, seconds, json)

    with suppress(KeyboardInterrupt):
        run(hold())


async def _held(host: "SlotsHost", dump: bool, seconds: float | None, json: bool) -> None:
    state = {"bus": host.name, "state": host.state}
    if json:
        print_json(state)
    else:
        typer.echo(f"{host.name}: {host.state}; Ctrl-C stops it")
    if dump:
        host._station.taps.append(_print_word)  # type: ignore[attr-defined]
    until = None if seconds is None else asyncio.get_running_loop().time() + seconds
    while until is None or asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.2)
        if host.state != state["state"]:
            state["state"] = host.state
            if json:
                print_json(state)
            else:
                typer.echo(f"{host.name}: {host.state}")
        if host.state in ("fenced", "stopped"):
            return


@command.command()
def enroll(
    slot: Annotated[str, typer.Argument(help="The slot to occupy.")],
    on: On = None,
    url: Url = None,
    stack: Stack = "views",
    key: Key = None,
    count: Annotated[int | None, typer.Option(help="Stop after so many messages.", min=1)] = None,
    seconds: Seconds = None,
    json: JsonFlag = False,
) -> None:
    """Occupy a slot, and print each message that comes to its ports."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def occupy() -> None:
        async with connect(url, name=f"{slot}-cli", stack=stack) as bus:
            held = await bus.enroll(slot, on=on, key=key)
            if not json:
                typer.echo(f"{slot} of {held.bus_name} is occupied with ticket {held.ticket}")
            plan = held._occupant.plan
            found = plan.slot(slot) if plan is not None else None
            ports = [port.name for port in (found.ports if found is not None else ()) if not port.sends]
            got = 0
            done = asyncio.Event()

            async def read(port: str) -> None:
                nonlocal got
                async for message in held.port(port):
                    if json:
                        print_json({"port": port, "source": message.source, "body": message.body})
                    else:
                        typer.echo(f"{message.source} -> {slot}.{port}: {message.body!r}")
                    if message.asks:
                        try:
                            message.reply(message.body)
                        except BadInput as error:  # the plan says another type: an echo is no answer there
                            message.fail(str(error))
                    message.acknowledge()
                    got += 1
                    if count is not None and got >= count:
                        done.set()

            reading = [asyncio.create_task(read(port)) for port in ports]
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await done.wait()
            for task in reading:
                task.cancel()

    with suppress(KeyboardInterrupt):
        run(occupy())


@command.command()
def send(
    port: Annotated[str, typer.Argument(help="The port to send on, as SLOT.PORT; its slot is occupied for that.")],
    body: Annotated[list[str], typer.Argument(help="JSON, or else text; as many messages as you like.")],
    on: On = None,
    url: Url = None,
    stack: Stack = "views",
    key: Key = None,
    wait: Annotated[str, typer.Option(help="all, first, or none: for how many acknowledgements to wait.")] = "all",
    ask: Annotated[bool, typer.Option("--ask", help="Send a question, and print the answer.")] = False,
    timeout: Annotated[float, typer.Option(help="For each message, in seconds.", min=0.1)] = 10.0,
    json: JsonFlag = False,
) -> None:
    """Occupy a slot, send messages on one of its ports, and leave. Exits with 1 if one was not acknowledged."""
    from pluribus.cli.pub import _value
    from pluribus.core.errors import Expired, Uncertain
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run
    from pluribus.slots.language import end_of

    if wait not in ("all", "first", "none"):
        raise BadInput(f"--wait {wait} is none of all, first, none: choose one of them")
    end = end_of(port)

    async def sent() -> dict[str, Any]:
        bus = await connect(url, name=f"{end.slot}-cli", stack=stack)
        try:
            held = await bus.enroll(end.slot, on=on, key=key)
            answers, counts, missed = [], [], ""
            for each in map(_value, body):
                try:
                    if ask:
                        answers.append(await held.ask(end.port, each, timeout=timeout))
                    else:
                        how = None if wait == "none" else wait
                        counts.append((await held.send(end.port, each, wait=how, timeout=timeout)).acknowledged)
                except (Expired, Uncertain) as error:
                    missed = str(error)
            return {"port": port, "sent": len(body), "acknowledged": counts, "answers": answers, "missed": missed}
        finally:
            await bus.close(timeout=0)

    found = run(sent())
    if json:
        print_json(found)
    else:
        for answer in found["answers"]:
            typer.echo(f"{answer!r}")
        typer.echo(found["missed"] or f"{found['sent']} sent on {port}")
    if found["missed"]:
        raise typer.Exit(1)


@command.command()
def route(
    source: Annotated[str, typer.Argument(help="As SLOT.PORT.")],
    target: Annotated[str, typer.Argument(help="As SLOT.PORT.")],
    slot: Annotated[str, typer.Option("--as", help="The slot to occupy meanwhile: a shadow slot, mostly.")],
    on: On = None,
    url: Url = None,
    stack: Stack = "views",
    key: Key = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the route instead of adding it.")] = False,
    capacity: Annotated[int, typer.Option(help="Messages that may wait on it.", min=1)] = 1_000,
    ttl: Annotated[float, typer.Option(help="For how long one may wait, in seconds.", min=0.001)] = 60.0,
    json: JsonFlag = False,
) -> None:
    """Add a route to a running bus, or delete one."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def changed() -> None:
        async with connect(url, name=f"{slot}-cli", stack=stack) as bus:
            held = await bus.enroll(slot, on=on, key=key)
            if delete:
                await held.del_route(source, target)
            else:
                await held.add_route(source, target, capacity=capacity, ttl_s=ttl)

    run(changed())
    if json:
        print_json({"source": source, "target": target, "deleted": delete})
    else:
        typer.echo(f"{source} -> {target} is {'deleted' if delete else 'added'}")


@command.command()
def watch(
    url: Url = None,
    stack: Stack = "views",
    seconds: Seconds = None,
    json: JsonFlag = False,
) -> None:
    """Print a line whenever a bus comes, goes, waits or runs, or somebody enrols or leaves."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def look() -> None:
        before: dict[str, str] = {}
        async with connect(url, name="slots", stack=stack) as bus:
            manager = await bus.communications()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    async for adverts in manager.changes():
                        now = {
                            a.bus: f"{'waiting' if a.waiting else 'running'}, {a.occupants} occupants, {a.by}"
                            for a in adverts
                        }
                        for name in sorted(now.keys() | before.keys()):
                            if now.get(name) != before.get(name):
                                if json:
                                    print_json({"bus": name, "state": now.get(name, "gone")})
                                else:
                                    typer.echo(f"{name}: {now.get(name, 'gone')}")
                        before = now

    with suppress(KeyboardInterrupt):
        run(look())


@command.command()
def dump(
    bus: BusArgument,
    url: Url = None,
    stack: Stack = "views",
    seconds: Seconds = None,
    json: JsonFlag = False,
) -> None:
    """Print the messages of a bus as people read them. A message from one member to one other is seen by these two
    alone: `pluribus slots up --dump` shows the messages of the router."""
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run
    from pluribus.runtime.styles.slots.buses import Slots

    async def listen() -> None:
        async with connect(url, name="slots-dump", stack=stack) as member:
            station = await member._style(Slots).station(bus)
            station.taps.append(_print_json_word if json else _print_word)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.Event().wait()

    with suppress(KeyboardInterrupt):
        run(listen())


def _print_word(sender: int, to: int, word: Any) -> None:
    from pluribus.slots.dump import line_of

    typer.echo(line_of(sender, to, word))


def _print_json_word(sender: int, to: int, word: Any) -> None:
    from pluribus.slots.dump import fields_of

    print_json(fields_of(sender, to, word))
