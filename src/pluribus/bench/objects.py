"""``pluribus bench objects``: the table of the report again, calls beside Pyro5, one multicast against n unicasts.

The report (*Communication in Bond*, table 1) has what a message took, in milliseconds: KQML 30 to 40 over UDP, 45 to 55
over TCP, 90 to 110 over Infospheres; objects 50 to 60, 60 to 70 and 70 to 90. Here a message and its answer are timed,
KQML or an object each way, between two processes, on every engine. Multicast is timed from the send until the objects
of all n members have answered, in both modes of one virtual network.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import pluribus

from ..core.errors import BadInput, Unavailable
from ..objects import Kqml, ObjectMessage, handles, kqml, parse
from .engines import carried, percentile
from .peers import pyro
from .ports import free_port
from .processes import Role, Together, measure, quiet
from .report import Curve, Goal, at_least, at_most, report, result

ROUNDS = 2_000
WARM_ROUNDS = 100
TEXT = "x" * 100
SHORT = "(ask-one :sender joe :content (PRICE IBM ?price) :receiver stock-server :reply-with ibm-stock)"
PARSES = 100_000
LOCAL = 300_000
RECEIVERS = (1, 2, 4, 8, 16, 32)
CASTS = 50
PARSED_MIN = 100_000
LOCAL_MIN = 300_000
PEERS = ("pyro5",)

Progress = Callable[[str], None]


@pluribus.register
@dataclasses.dataclass
class Basic:
    """A basic object, as the report sends one."""

    name: str = TEXT
    number: int = 0


class Echo:
    """Answers a message with its content, an object with an object, a call with its argument."""

    @handles("ask-one")
    async def asked(self, message: Kqml) -> Any:
        return message.content

    @handles(Basic)
    async def given(self, message: ObjectMessage) -> Basic:
        return Basic(number=message.body.number + 1)

    @pluribus.exposed
    async def echo(self, text: str) -> str:
        return text


class Sink:
    """Accepts every message at once."""

    def __init__(self) -> None:
        self.got = 0

    @handles("tell", quick=True)
    def told(self, message: Kqml) -> None:
        self.got += 1


def run(*, quick: bool = False, peers: str = "", progress: Progress = lambda text: None, **_: Any) -> dict[str, Any]:
    rivals = rival_names(peers)
    runs, share = (1, 20) if quick else (3, 1)
    trips: dict[tuple[str, str], list[float]] = {}
    casts: dict[tuple[str, int], list[float]] = {}
    parsed: list[float] = []
    local: list[float] = []
    missing: dict[str, str] = {}
    with carried() as nats:
        urls: dict[str, Callable[[], str]] = {
            "udp": lambda: f"udp://127.0.0.1:{free_port()}/bench",
            "tcp": lambda: f"tcp://127.0.0.1:{free_port()}/bench",
            "multicast": lambda: f"multicast://bench-{free_port()}",
            **({"nats": lambda: f"nats://{nats}/bench-{free_port()}"} if nats else {}),
        }
        for attempt in range(runs):
            for engine, url in urls.items():
                progress(f"run {attempt + 1} of {runs}: {engine}")
                for what, values in round_trips(url(), ROUNDS // share).items():
                    trips.setdefault((engine, what), []).extend(values)
            for rival in rivals:
                progress(f"run {attempt + 1} of {runs}: {rival}")
                try:
                    trips.setdefault((rival, "call"), []).extend(pyro.trips(ROUNDS // share, TEXT))
                except Unavailable as error:
                    missing[rival] = str(error)
            progress(f"run {attempt + 1} of {runs}: texts and local messages")
            parsed.append(parse_rate(PARSES // share))
            local.append(local_rate(LOCAL // share))
            for receivers in RECEIVERS[: 3 if quick else None]:
                progress(f"run {attempt + 1} of {runs}: multicast to {receivers}")
                for mode, took in cast(receivers, CASTS // min(share, 10)).items():
                    casts.setdefault((mode, receivers), []).extend(took)
    rows = [
        result(f"{engine}, {what}, p{percent}", "µs", [percentile(values, percent)])
        for (engine, what), values in trips.items()
        if values
        for percent in (50, 99)
    ]
    rows += [result("KQML text parsed", "messages/s", parsed), result("local delivery", "messages/s", local)]
    rows += [result(f"{mode} to {count}", "µs", took) for (mode, count), took in casts.items()]
    curves = [
        Curve(mode, "receivers", "µs", [[float(n), statistics.median(t)] for (m, n), t in casts.items() if m == mode])
        for mode in ("unicast", "multicast")
    ]
    found = report("objects", rows, goals(trips, casts, parsed, local), curves)
    found["settings"] = {rival: missing.get(rival, pyro.SETTINGS) for rival in rivals}
    return found


def goals(
    trips: dict[tuple[str, str], list[float]],
    casts: dict[tuple[str, int], list[float]],
    parsed: list[float],
    local: list[float],
) -> list[Goal]:
    found = [
        at_least("KQML texts parsed a second", statistics.median(parsed), PARSED_MIN),
        at_least("local messages a second", statistics.median(local), LOCAL_MIN),
    ]
    theirs = trips.get(("pyro5", "call"))
    if theirs:
        ours = percentile(trips[("tcp", "call")], 50)
        found.append(at_most("a call over TCP: times Pyro5's", ours / percentile(theirs, 50), 1.0))
    most = max(count for _, count in casts)
    times = statistics.median(casts[("multicast", most)]) / statistics.median(casts[("unicast", most)])
    found.append(at_most(f"a multicast to {most}: times so many unicasts", times, 1.0))
    return found


def rival_names(wanted: str) -> list[str]:
    names = list(PEERS) if wanted == "all" else [name for name in wanted.split(",") if name]
    for name in names:
        if name not in PEERS:
            raise BadInput(f"there is no peer {name!r}: use {', '.join(PEERS)}, or all")
    return names


def parse_rate(count: int) -> float:
    started = perf_counter()
    for _ in range(count):
        parse(SHORT)
    return count / (perf_counter() - started)


def local_rate(count: int) -> float:
    """Messages to an object of the same process, a second."""

    async def main() -> float:
        async with pluribus.connect(f"inproc://bench-{free_port()}") as bus:
            sink = Sink()
            shadow = await bus.directory.add(sink)
            message = kqml("tell", content=TEXT)
            started = perf_counter()
            for number in range(count):
                await shadow.send(message)
                if not number % 1_000:
                    await asyncio.sleep(0)
            took = perf_counter() - started
            assert sink.got == count
            return count / took

    return float(pluribus.run(main()))


def round_trips(url: str, rounds: int) -> dict[str, list[float]]:
    """Of KQML messages, of objects and of calls, between two processes; µs."""
    roles: list[Role] = [(serve, (url,)), (ask, (url, rounds))]
    found: dict[str, list[float]] = measure(roles, 1)[0]
    return found


def serve(together: Together, url: str) -> None:
    quiet()

    async def main() -> None:
        async with pluribus.connect(url, name="echo") as bus:
            await bus.directory.add(Echo(), "echo")
            await asyncio.to_thread(together.wait)
            await asyncio.Event().wait()

    pluribus.run(main())


def ask(together: Together, url: str, rounds: int) -> None:
    quiet()

    async def main() -> None:
        async with pluribus.connect(url, name="asker") as bus:
            await asyncio.to_thread(together.wait)
            shadow = await bus.directory.find("echo", timeout=30)
            question = kqml("ask-one", content=TEXT)
            ways: dict[str, Callable[[], Any]] = {
                "KQML message": lambda: shadow.ask(question),
                "object message": lambda: shadow.ask(ObjectMessage(Basic())),
                "call": lambda: shadow.call("echo", TEXT),
            }
            found: dict[str, list[float]] = {}
            for what, way in ways.items():
                trips = []
                for _ in range(WARM_ROUNDS + rounds):
                    started = perf_counter()
                    await way()
                    trips.append((perf_counter() - started) * 1e6)
                found[what] = trips[WARM_ROUNDS:]
            together.answer(found)

    pluribus.run(main())


def cast(receivers: int, rounds: int) -> dict[str, list[float]]:
    """From one send to n processes' objects until all have answered, in both modes; µs. The receivers are members of
    the bus in one process, because n processes on few cores would only measure the scheduler."""
    url = f"multicast://bench-{free_port()}"
    roles: list[Role] = [(hear, (url, receivers)), (tell, (url, receivers, rounds))]
    found: dict[str, list[float]] = measure(roles, 1)[0]
    return found


class Replier:
    """Tells the sender of each message that it has come."""

    bus: pluribus.Bus

    @handles("achieve")
    async def heard(self, message: Kqml) -> None:
        await self.bus.communicator.send(message["sender"], kqml("tell"), sender=self)


def hear(together: Together, url: str, receivers: int) -> None:
    quiet()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            buses = [await pluribus.connect(url, name=f"r{number}") for number in range(receivers)]
            for bus in buses:
                replier = Replier()
                replier.bus = bus
                await bus.directory.add(replier, "replier")
            tasks.create_task(asyncio.to_thread(together.wait))
            await asyncio.Event().wait()

    pluribus.run(main())


def tell(together: Together, url: str, receivers: int, rounds: int) -> None:
    quiet()

    async def main() -> None:
        async with pluribus.connect(url, name="sender") as bus:
            sink = Sink()
            me = await bus.directory.add(sink)
            await asyncio.to_thread(together.wait)
            await (await bus._post.group()).wait_for(receivers + 1, timeout=60)
            network = bus.virtual_network("receivers")
            for shadow in await bus.directory.find_all("replier", timeout=30):
                await network.add(shadow)
            found: dict[str, list[float]] = {}
            for mode in ("unicast", "multicast"):
                network.switch(mode)
                found[mode] = [await _until_all(network, me, sink, receivers) for _ in range(rounds + 5)][5:]
            together.answer(found)

    pluribus.run(main())


async def _until_all(network: Any, me: Any, sink: Sink, receivers: int) -> float:
    sink.got = 0
    message = kqml("achieve", content=TEXT)
    started = perf_counter()
    await network.multicast(message, me)
    while sink.got < receivers:  # noqa: ASYNC110 - an event would be timed as well
        await asyncio.sleep(0)
    return (perf_counter() - started) * 1e6
