"""The fire alarm of the book with objects that talk: sensors raise alarms of several types, panels hear them.

    python examples/alarm_objects.py                        everything in one process
    python examples/alarm_objects.py hear --place cellar    a panel that shows alarms of the cellar, until Ctrl-C
    python examples/alarm_objects.py raise fire cellar      raise an alarm; so many panels have taken it

All parts are on the bus of ``$PLURIBUS_URL``, by default multicast on this machine.
"""

import argparse
import asyncio
import dataclasses
from datetime import UTC, datetime

import pluribus
from pluribus.objects import Kqml, ObjectMessage, handles, kqml

TYPES = ("fire", "flood", "intrusion")


@pluribus.register
@dataclasses.dataclass
class Alarm:
    type: str
    place: str
    at: datetime = dataclasses.field(default_factory=lambda: datetime.now(UTC))


class Siren:
    """The interface of whatever makes noise."""

    async def howl(self, type: str, seconds: float) -> bool:
        raise NotImplementedError


class Panel(Siren):
    """Takes alarms of one place, or of all, and answers what it has seen."""

    def __init__(self, place: str | None = None) -> None:
        self.place = place
        self.alarms: list[Alarm] = []

    @handles(Alarm)
    async def alarmed(self, message: ObjectMessage) -> str:
        alarm = message.body
        if self.place is not None and alarm.place != self.place:
            return "not mine"
        self.alarms.append(alarm)
        print(f"{alarm.at:%H:%M:%S} {alarm.type.upper()} in the {alarm.place}", flush=True)
        return "taken"

    @handles("ask-all")
    async def asked(self, message: Kqml) -> list[str]:
        """``(ask-all :content fire)``: the places of alarms of this type."""
        return [alarm.place for alarm in self.alarms if alarm.type == message.content]

    async def howl(self, type: str, seconds: float) -> bool:
        print(f"the siren howls for {seconds:g} s: {type}", flush=True)
        return True


async def hear(place: str | None) -> None:
    async with pluribus.connect(name="panel") as bus:
        await bus.directory.add(Panel(place), "panels", exports=[Siren])
        await asyncio.Event().wait()


async def raise_alarm(bus: pluribus.Bus, alarm: Alarm) -> int:
    """Tell every panel; how many took the alarm. Those that did are made to howl."""
    answers = [await shadow.ask(ObjectMessage(alarm)) for shadow in await bus.directory.find_all("panels", timeout=5)]
    taken = sum(answer.content == "taken" for answer in answers)
    if taken:
        await bus.omni(Siren).howl(alarm.type, 3.0)
    return taken


async def everything() -> None:
    url = "inproc://building"
    async with pluribus.connect(url, name="hall") as hall, pluribus.connect(url, name="cellar") as cellar:
        everywhere, below = Panel(), Panel("cellar")
        await hall.directory.add(everywhere, "panels", exports=[Siren])
        await cellar.directory.add(below, "panels", exports=[Siren])
        assert await raise_alarm(cellar, Alarm("fire", "cellar")) == 2
        assert await raise_alarm(cellar, Alarm("flood", "laundry")) == 1
        answers = await cellar.communicator.ask_all("panels", kqml("ask-all", content="flood"))
        assert sorted(answer.content for answer in answers) == [[], ["laundry"]]


def main() -> None:
    parser = argparse.ArgumentParser(description="The fire alarm with objects that talk.")
    roles = parser.add_subparsers(dest="role")
    roles.add_parser("hear").add_argument("--place")
    raising = roles.add_parser("raise")
    raising.add_argument("type", choices=TYPES)
    raising.add_argument("place")
    given = parser.parse_args()

    async def raised() -> None:
        async with pluribus.connect(name="sensor") as bus:
            print(f"{await raise_alarm(bus, Alarm(given.type, given.place))} panels took the alarm")

    work = {"hear": lambda: hear(given.place), "raise": raised}.get(given.role, everything)
    pluribus.run(work())


if __name__ == "__main__":
    main()
