"""The fire alarm of the book (figures 6.24 to 6.26) on a tuple space, with types of alarm and a place.

    python examples/alarm_space.py

Sensors write alarms, which stay for an hour. Sprinklers wait for alarms of their floor; a display is notified of all of
them, and the service takes each alarm once.
"""

import asyncio

import msgspec

import pluribus
from pluribus.javaspaces import FOREVER, JavaSpace, RemoteEvent

HOUR_MS = 60 * 60 * 1000


@pluribus.register
class Alarm(msgspec.Struct):
    """Figure 6.24, with a type of alarm and a place."""

    alarm_type: str | None = None
    floor: int | None = None


class FireAlarm:
    """Figure 6.25: raises alarms."""

    def __init__(self, space: JavaSpace) -> None:
        self.space = space

    async def raise_(self, alarm_type: str, floor: int) -> None:
        await self.space.write(Alarm(alarm_type, floor), None, HOUR_MS)


class FireAlarmReceiver:
    """Figure 6.26: waits for an alarm of a type, wherever it is."""

    def __init__(self, space: JavaSpace) -> None:
        self.space = space

    async def await_(self, alarm_type: str) -> Alarm:
        found: Alarm = await self.space.read(Alarm(alarm_type), None, FOREVER)
        return found


async def main() -> None:
    url = "multicast://alarm-space"
    async with pluribus.connect(url, name="sensor") as sensor, pluribus.connect(url, name="house") as house:
        mine, theirs = await JavaSpace.find(sensor, "AlarmSpace"), await JavaSpace.find(house, "AlarmSpace")
        shown: list[str] = []
        done = asyncio.Event()

        def display(event: RemoteEvent) -> None:
            shown.append(f"{event.hand_back}: {event.entry.alarm_type} on floor {event.entry.floor}")
            if len(shown) == 3:
                done.set()

        registration = await theirs.notify(Alarm(), None, display, HOUR_MS, "display")
        receiver = asyncio.create_task(FireAlarmReceiver(theirs).await_("Fire!"))
        alarm = FireAlarm(mine)
        for alarm_type, floor in (("Flood!", 0), ("Fire!", 3), ("Fire!", 7)):
            await alarm.raise_(alarm_type, floor)
        print("Alarm received:", (await receiver).alarm_type)
        high = await theirs.space.take(Alarm("Fire!"), "floor > 5", timeout=10)
        print(f"The service goes to floor {high.floor}; {await theirs.space.count(Alarm)} alarms are left.")
        await done.wait()
        await registration.cancel()
        print("\n".join(shown))


if __name__ == "__main__":
    pluribus.run(main())
