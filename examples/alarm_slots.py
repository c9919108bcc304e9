"""The fire alarm on a software bus: detectors, sirens and a log, each a program in a slot; types of alarm, and a place.

Who is connected with whom stands in the plan, not in the programs. A siren that is not there yet gets the alarm when it
enrols, and a control room, from a shadow slot, changes the routes while it runs.

    python examples/alarm_slots.py
"""

import asyncio

import msgspec

import pluribus
from pluribus.slots.check import plan_of


@pluribus.register
class Alarm(msgspec.Struct):
    kind: str
    floor: int
    room: str = ""


PLAN = """
bus building
slot detector 0..many { out fire : Alarm  out flood : Alarm }
slot siren 0..many    { in alarm : Alarm }
slot pump             { in alarm : Alarm }
slot control shadow

detector.fire  -> siren.alarm ttl 10 min
detector.flood -> pump.alarm  ttl 10 min
"""


async def sound(slot, heard):
    async for message in slot.port("alarm"):
        heard.append((slot.name, message.body.kind, message.body.floor))


async def main() -> list[tuple[str, str, int]]:
    url, heard = "inproc://building", []
    async with pluribus.connect(url, name="cellar") as cellar, pluribus.connect(url, name="roof") as roof:
        await cellar.slots(plan_of(PLAN))
        detector = await cellar.enroll("detector")
        await detector.send("fire", Alarm("fire", 3, "kitchen"))  # no siren is there: it waits here
        siren = await roof.enroll("siren")
        tasks = [asyncio.create_task(sound(siren, heard))]

        pump = await roof.enroll("pump")
        tasks.append(asyncio.create_task(sound(pump, heard)))
        await detector.send("flood", Alarm("flood", 0, "boiler room"), wait="all")

        control = await cellar.enroll("control")
        await control.add_route("detector.flood", "siren.alarm")
        await detector.send("flood", Alarm("flood", 0, "boiler room"), wait="all")
        while detector.queued:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
    return heard


if __name__ == "__main__":
    for slot, kind, floor in asyncio.run(main()):
        print(f"{slot}: {kind} on floor {floor}")
