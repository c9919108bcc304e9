"""Members of one bus as processes that follow commands: connect, send at a pace, leave, report views.

Unlike the processes of a measurement (``processes``) a crew changes while it runs: members come, go and are killed.
Each member has a pipe to the parent, and reports every view that it enters.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from time import monotonic, process_time
from typing import Any

import msgspec

import pluribus

from ..core.errors import PluribusError
from ..events import ViewInstalled
from .processes import context, quiet

GROUP = "bench"
BODY = b"x" * 100
TICK_S = 0.005
"""Seconds between two times at which a sender wakes and sends what is due: loops that wake a thousand times a second
would measure the scheduler."""
ANSWER_S = 60.0
GOODBYE_S = 5.0
POLL_S = 0.5


class Imported(msgspec.Struct, frozen=True):
    """The program is loaded; the time from here on is measured."""

    at: float


class Seen(msgspec.Struct, frozen=True):
    """A view of the group. Clocks of one machine agree between processes."""

    at: float
    members: int


class Flushed(msgspec.Struct, frozen=True):
    """A view change has ended, and had blocked senders for so long."""

    blocked_s: float


class Told(msgspec.Struct, frozen=True):
    """A member's report, on request."""

    cpu_s: float
    at: float
    eldest: bool
    sent: int
    received: int
    send_s_max: float
    """The longest time of one ``await send`` since the last report."""


class Member:
    """One process, as the parent sees it."""

    def __init__(self, url: str, name: str, rate: int, *, wait: bool = False) -> None:
        self.name = name
        self.seen: list[Seen] = []
        self.blocked_s: list[float] = []
        self.imported_at = 0.0
        self.told: Told | None = None
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_live, args=(theirs, url, name, rate), daemon=True)
        self.process.start()
        theirs.close()
        if not wait:
            self.say("connect")

    def say(self, word: str) -> None:
        self.pipe.send(word)

    def kill(self) -> float:
        """Kill the process with signal 9; returns the time."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        return monotonic()

    def hear(self) -> None:
        """Read the member's reports. A process that has ended reports nothing more."""
        with suppress(EOFError, ConnectionError):
            while self.pipe.poll():
                match self.pipe.recv():
                    case Seen() as seen:
                        self.seen.append(seen)
                    case Flushed(blocked_s):
                        self.blocked_s.append(blocked_s)
                    case Imported(at):
                        self.imported_at = at
                    case Told() as told:
                        self.told = told

    def end(self) -> None:
        self.process.join(GOODBYE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()

    def saw(self, members: int, since: float) -> float | None:
        """The time at which the member first saw a view of so many members, after a given time; None if it has not seen
        one."""
        return next((seen.at for seen in self.seen if seen.members == members and seen.at >= since), None)


class Crew:
    def __init__(self, url: str, rate: int) -> None:
        self.url = url
        self.rate = rate
        self.members: list[Member] = []
        self._dismissed: list[Member] = []
        self._count = 0

    def add(self, *, wait: bool = False) -> Member:
        """Start a member. With ``wait`` it loads its program, and connects on command."""
        self._count += 1
        member = Member(self.url, f"member-{self._count}", self.rate, wait=wait)
        self.members.append(member)
        return member

    def all_see(self, members: int, since: float) -> float:
        """Wait until all members have seen a view of so many members after a given time; returns the time at which the
        last one saw it."""
        self.until(lambda: all(member.saw(members, since) is not None for member in self.members), f"{members} members")
        return max(member.saw(members, since) or 0.0 for member in self.members)

    def ask(self) -> list[Told]:
        for member in self.members:
            member.told = None
            member.say("tell")
        self.until(lambda: all(member.told is not None for member in self.members), "answers")
        return [member.told for member in self.members if member.told is not None]

    def dismiss(self, member: Member) -> None:
        """The member was told to leave, or is dead: nothing waits for it any more."""
        self.members.remove(member)
        self._dismissed.append(member)

    def end(self) -> None:
        for member in self.members:
            member.process.kill()
        for member in (*self.members, *self._dismissed):
            member.end()

    def hear(self, seconds: float) -> None:
        """Let time pass, and read reports meanwhile."""
        self.until(lambda: False, "", seconds)

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 0.0) -> None:
        until = monotonic() + (seconds or ANSWER_S)
        while not condition():
            left_s = until - monotonic()
            if left_s <= 0:
                if seconds:
                    return
                raise PluribusError(f"no {what} in {ANSWER_S:g} s: is the machine overloaded?")
            dead = [member.name for member in self.members if member.process.exitcode]
            if dead:
                raise PluribusError(f"{', '.join(dead)} failed: its own words are above")
            wait([member.pipe for member in self.members], min(left_s, POLL_S))
            for member in self.members:
                member.hear()


@contextmanager
def crew(url: str, rate: int) -> Iterator[Crew]:
    """A crew; its processes are ended, whatever happens."""
    made = Crew(url, rate)
    try:
        yield made
    finally:
        made.end()


# In the members' processes


def _live(pipe: Connection, url: str, name: str, rate: int) -> None:
    quiet()
    pipe.send(Imported(monotonic()))
    if pipe.recv() == "connect":
        pluribus.run(_Life(pipe, url, name, rate).main())


class _Life:
    def __init__(self, pipe: Connection, url: str, name: str, rate: int) -> None:
        self._pipe = pipe
        self._url = url
        self._name = name
        self._rate = rate
        self._sent = self._received = 0
        self._send_s_max = 0.0
        self._left = asyncio.Event()

    async def main(self) -> None:
        async with pluribus.connect(self._url, name=self._name, stack="views") as bus:
            bus.on_event(lambda event: self._note(bus, event))
            group = await bus.group(GROUP)
            asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._obey, bus)
            tasks = [asyncio.create_task(job(group)) for job in (self._watch, self._read, self._send)]
            await self._left.wait()
            for task in tasks:
                task.cancel()

    def _note(self, bus: pluribus.Bus, event: object) -> None:
        if isinstance(event, ViewInstalled):
            self._pipe.send(Flushed(bus.stats()["membership"]["flush_s_last"]))

    def _obey(self, bus: pluribus.Bus) -> None:
        try:
            word = self._pipe.recv()
        except (EOFError, ConnectionError):  # the parent is gone
            word = "leave"
        if word == "leave":
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            self._left.set()
        elif word == "tell":
            eldest = next(iter(bus.members)) == bus.me
            told = Told(process_time(), monotonic(), eldest, self._sent, self._received, self._send_s_max)
            self._send_s_max = 0.0
            self._pipe.send(told)

    async def _watch(self, group: pluribus.Group) -> None:
        async for view in group.views():
            self._pipe.send(Seen(monotonic(), len(view)))

    async def _read(self, group: pluribus.Group) -> None:
        async for message in group:
            message.body  # noqa: B018 - as a program would
            self._received += 1

    async def _send(self, group: pluribus.Group) -> None:
        if not self._rate:
            return
        started, sent = monotonic(), 0
        while True:
            due = int((monotonic() - started) * self._rate) - sent
            for _ in range(due):
                began = monotonic()
                await group.send(BODY)
                self._send_s_max = max(self._send_s_max, monotonic() - began)
            sent += due
            self._sent += due
            await asyncio.sleep(TICK_S)
