"""The way to a space of the kinds *views* and *partitioned*: this member is one of the crew, the members that together
hold the space.

The roster is a replica on the safe order of the bus; words go through a group of the space. One task drives the
protocol: it sends the protocol's words, waits until something is due or arrives, and settles results. Another task
watches the view, and has the roster strike off members that are gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ....core.errors import BadInput, Closed, Overflow, PluribusError, TooLarge, Undelivered
from ....spaces.kept import granted
from ....spaces.roster import Enter, Epoch, Open, Roster, Strike, encode
from ....spaces.templates import Template
from ....spaces.values import Item, written_of
from ....spaces.views.words import Name
from ....spaces.watching import REGISTRATIONS_MAX, Watched
from .space import Registration, WriteResult, ended, microseconds, only_durable, seconds
from .watching import WatchedRegistration, resumed

if TYPE_CHECKING:
    from ...bus import Bus
    from ...group.group import Group
    from ...group.replica import Replica

LOOK_S = 0.5
"""Seconds after which the roster is compared with the view anyway."""
LEAVE_S = 0.05
OUTSIDE_S = 0.05
"""Seconds between two looks whether this member is in the primary again."""
PREFIX = "space/"

Leasehold = tuple[Item, int]
"""A tuple, and the remaining seconds of its lease; 0: it has no end."""

log = logging.getLogger(__name__)


class Crew:
    """One member of a space that its members make. ``start`` joins."""

    kind = ""

    def __init__(self, bus: Bus, name: str, member: Any, words: Any, holds: bool, settings: str) -> None:
        self.name = name
        self.member = member
        self._bus = bus
        self._words = words
        self._holds = holds
        self._settings = settings
        self._clock = bus._stack.ports.clock
        self._waiters: dict[int, asyncio.Future[Any]] = {}
        self._taking: set[int] = set()
        """Requests that take or register: if the caller has given up, that is undone."""
        self._woken = asyncio.Event()
        self._looks = asyncio.Event()
        """Set if the roster or the view has changed, or an epoch may be opened."""
        self._until: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        """What callers wait for."""
        self._group: Group | None = None
        self._roster: Replica[Roster] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.on_void: list[Callable[[Any], None]] = []
        self.on_lost: list[Callable[[dict[int, int]], None]] = []
        self._lost = 0
        self.malformed = 0
        self._takers = 0
        """Calls that take, and that have not put back yet what they got in vain."""
        self.users = 0
        """Users in this program, one more if the member takes part for its clients."""
        self.for_clients = False
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def named(self, number: int) -> Name:
        """The name of a tuple that this worker wrote."""
        return (self.member.worker, number)

    async def also(self, holds: bool, copies: int, key: int) -> None:
        """Open it once more here; from now on this member keeps tuples if any user wants that."""
        settings = self._settings and settings_of(copies, key)
        if settings != self._settings:
            raise BadInput(f"the space {self.name!r} has {self._settings}, not {settings}; open it as the others did")
        if holds and not self._holds:
            if self.kind == "views":
                raise BadInput(
                    f"this program has {self.name!r} open with replica=False: close it, and open it with a replica"
                )
            self._holds = True
            await self._enter()

    async def start(self) -> None:
        self._group = await self._bus.group(f"{PREFIX}{self.name}/words", own=False)
        self._roster = await self._bus.replica(f"{PREFIX}{self.name}/roster", Roster(self._changed))
        self._tasks = [asyncio.create_task(work()) for work in (self._read, self._drive, self._look, self._watch)]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        await self._enter()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """If a task of this crew has failed, end all waiting: nothing would end it later."""
        if not task.cancelled() and (error := task.exception()) is not None and not self._closed:
            log.error("the space %r cannot go on in this program: %r", self.name, error)
            self.abandon()

    async def _enter(self) -> None:
        epoch = self.member.epoch
        seen, opened, born = (0, 0, 0) if epoch is None else (epoch.number, epoch.opened, epoch.born)
        enter = Enter(int(self._bus.me), self.member.worker, self._holds, seen, self._settings, opened, born)
        assert self._roster is not None
        refused = await self._roster.call(encode(enter))
        if refused:
            raise BadInput(f"the space {self.name!r}: {refused.decode()}; open it as the others did")
        self._follow()

    def _changed(self) -> None:
        self._woken.set()
        self._looks.set()

    @property
    def _now(self) -> float:
        return self._clock.now()

    def _follow(self) -> None:
        """Follow the roster, which may have changed."""
        assert self._roster is not None
        epoch: Epoch = self._roster.machine.epoch
        if epoch is not self.member.epoch and not self._is_another(epoch):
            self.member.enter(epoch, self._now)
            self._settle()

    def _is_another(self, epoch: Epoch) -> bool:
        """True if the roster's epoch names this member as the worker that it was before it opened the space again. The
        tuples of that worker are not here."""
        me, worker = int(self._bus.me), self.member.worker
        return any(one.member == me and one.worker != worker for one in epoch.entries)

    async def _read(self) -> None:
        assert self._group is not None
        async for message in self._group:
            if not self._bus.primary:
                continue  # others go on without this member; the word is said again
            try:
                word = self._words.decode(message.body)
            except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
                self.malformed += 1
                continue
            self._follow()
            self.member.heard(int(message.sender), word, self._now)
            self._settle()

    async def _drive(self) -> None:
        assert self._group is not None
        me = int(self._bus.me)
        while not self._closed:
            out, self.member.out = self.member.out, []
            for to, word in out if self._bus.primary else ():  # else the words are said again
                data = self._words.encode(word)
                if to == me:
                    self.member.heard(me, self._words.decode(data), self._now)
                    continue
                if to not in self._group.view:
                    continue  # the word is said again, or the roster changes
                try:
                    await self._group.send(data, to=to)
                except Closed:
                    return
                except TooLarge as error:
                    log.error("the space %r cannot go on: %s", self.name, error)
                except PluribusError as error:
                    log.debug("a word of the space %r was not sent: %s", self.name, error)
            self._settle()
            if self.member.out:
                continue
            self._woken.clear()
            delay_s = min(max(self.member.due_at - self._now, 0.001), LOOK_S) if self._bus.primary else LOOK_S
            timer = self._clock.call_later(delay_s, self._woken.set)
            await self._woken.wait()
            timer.cancel()
            self._follow()
            if self._bus.primary and self._now >= self.member.due_at:
                self.member.tick(self._now)

    async def _watch(self) -> None:
        assert self._group is not None
        async for _ in self._group.views():
            self._changed()

    async def _look(self) -> None:
        """Strike off members that are gone, enter again if this one was struck off, and open epochs."""
        assert self._group is not None and self._roster is not None
        me = int(self._bus.me)
        while not self._closed:
            try:
                await self._look_once(me)
            except Closed:
                return
            except PluribusError as error:
                log.debug("the roster of the space %r: %s", self.name, error)
            timer = self._clock.call_later(LOOK_S, self._looks.set)
            await self._looks.wait()
            timer.cancel()
            self._looks.clear()

    async def _look_once(self, me: int) -> None:
        assert self._group is not None and self._roster is not None
        self._follow()
        epoch = self._roster.machine.epoch
        if not self._bus.primary:
            return
        if self.member.opening:
            opening, self.member.opening = self.member.opening, 0
            await self._roster.call(encode(Open(opening)), timeout=2.0)
        here = {int(member) for member in self._roster.view.members} & {int(one) for one in self._bus.members}
        known = self.member.epoch
        later = known is not None and known.number > epoch.number
        if me not in epoch.members or later or self._is_another(epoch):
            await self._enter()
        elif me in here:
            gone = [member for member in epoch.members if member not in here]
            if gone and me == next((one for one in epoch.members if one in here), me):
                await self._roster.call(encode(Strike(gone)), timeout=2.0)
        self._follow()

    # Requests.

    def _settle(self) -> None:
        results, self.member.results = self.member.results, []
        for result in results:
            waiter = self._waiters.pop(result.request, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(result)
            else:
                self._nobody_waits(result)
        self._told()
        if self.member.opening:
            self._looks.set()
        if self.member.out:
            self._woken.set()
        until, self._until = self._until, []
        for holds, waiting in until:
            if waiting.done():
                continue
            if holds():
                waiting.set_result(None)
            else:
                self._until.append((holds, waiting))

    def _tell(self, listeners: Sequence[Callable[[Any], None]], told: Any) -> None:
        """After what is going on: a listener may use the space, and one that fails is no failure of the protocol."""
        for listener in listeners:
            asyncio.get_running_loop().call_soon(self._call, listener, told)

    def _call(self, listener: Callable[[Any], None], told: Any) -> None:
        try:
            listener(written_of(told) if isinstance(told, Item) else told)
        except Exception:
            log.exception("a listener of the space %r failed on %r", self.name, told)

    def _told(self) -> None:
        """Events of the protocol besides results."""

    def _nobody_waits(self, result: Any) -> None:
        """A cancelled take got a tuple all the same: write it again. A registration that nobody has ends."""
        if result.request in self._taking:
            self._taking.discard(result.request)
            if result.item is not None:
                self.put_back([(result.item, result.lease_us)])
            elif result.name != (0, 0):
                self.member.renew(result.name, 0, True, self._now)

    def put_back(self, taken: Sequence[Leasehold]) -> None:
        """Write taken tuples again, as soon as possible."""
        if not self._closed:
            for item, lease_us in taken:
                self.member.write(item, lease_us, self._now)
            self._woken.set()

    def _result(self, number: int, timeout: float | None, takes: bool) -> Coroutine[Any, Any, Any]:
        """Wait for the result of a request. The waiter is there at once, and not when the caller first awaits: results
        that nobody waits for are thrown away, and this member may be answered in the next turn of the loop."""
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiters[number] = waiter
        if takes:
            self._taking.add(number)
        self._settle()
        return self._awaited(number, waiter, timeout, takes)

    async def _awaited(self, number: int, waiter: asyncio.Future[Any], timeout: float | None, takes: bool) -> Any:
        try:
            try:
                async with asyncio.timeout(timeout):
                    result = await asyncio.shield(waiter)
            except TimeoutError:
                self._cancel(number)
                self._settle()
                result = await asyncio.shield(waiter)
        except asyncio.CancelledError:
            self._waiters.pop(number, None)
            if waiter.done():
                if takes and waiter.exception() is None and waiter.result() is not None:
                    self._nobody_waits(waiter.result())
            else:
                self._cancel(number)
            self._settle()
            raise
        self._taking.discard(number)
        return result

    def _cancel(self, number: int) -> None:
        raise NotImplementedError

    async def write(self, items: list[Item], lease_s: float | None, transaction: int) -> WriteResult:
        raise NotImplementedError

    async def take(
        self,
        template: Template,
        most: int,
        timeout: float | None,
        if_exists: bool,
        transaction: int,
        write: list[Item],
        lease_s: float | None,
    ) -> list[Item]:
        self._check(transaction)
        probe = if_exists or timeout == 0
        found = await self.taken(template, most, 0.0 if probe else timeout, write, granted(microseconds(lease_s)))
        return [item for item, _ in found]

    async def taken(
        self, template: Template, most: int, timeout: float | None, write: list[Item], lease_us: int
    ) -> list[Leasehold]:
        """``timeout`` None waits for ever, 0 does not wait. If the call is cancelled, a taken tuple is written again,
        but a replacement stays."""
        probe = timeout == 0
        if not await self._in_primary(None if probe else timeout):
            return []
        if write:
            number = self.member.replace(template, probe, write[0], lease_us, self._now)
            result = await self._result(number, None if probe else timeout, False)
            return [] if result is None or result.item is None else [(result.item, result.lease_us)]
        found: list[Leasehold] = []
        self._takers += 1
        try:
            wait_s = None if probe else timeout
            while len(found) < most:
                number = self.member.take(template, probe or bool(found), self._now)
                result = await self._result(number, None if found else wait_s, True)
                if result is None or result.item is None:
                    break
                found.append((result.item, result.lease_us))
        except BaseException:
            self.put_back(found)
            raise
        finally:
            self._takers -= 1
            self._settle()
        return found

    async def read(
        self, template: Template, timeout: float | None, if_exists: bool, transaction: int, stale: bool
    ) -> Item | None:
        self._check(transaction)
        replica = getattr(self.member, "replica", None)
        if stale:
            if replica is None:
                raise BadInput(
                    f"stale=True reads the own copy, and this member has none of {self.name!r}: leave it out"
                )
            found = replica.find(template)
            if found is not None:
                item: Item = found[1]
                return item
        probe = if_exists or timeout == 0
        if not await self._in_primary(None if probe else timeout):
            return None
        result = await self._result(self.member.read(template, probe, self._now), None if probe else timeout, False)
        return None if result is None else result.item

    async def _in_primary(self, timeout: float | None = None) -> bool:
        """Outside the primary a call waits: what is here may be out of date. False if ``timeout`` is over first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._bus.primary:
                    self._check(0)
                    await asyncio.sleep(OUTSIDE_S)
        return self._bus.primary

    async def page(self, template: Template, after: int, most: int, transaction: int) -> tuple[list[int], list[Item]]:
        raise NotImplementedError

    async def count(self, template: Template, transaction: int) -> int:
        raise NotImplementedError

    async def renew(self, number: int, lease_s: float | None, item: Item) -> WriteResult:
        name, granted_s = await self.renew_named(self.named(number), lease_s, item)
        return WriteResult([name[1]], granted_s)

    async def cancel(self, number: int, item: Item) -> None:
        await self.cancel_named(self.named(number), item)

    async def renew_named(self, name: Name, lease_s: float | None, item: Item) -> tuple[Name, float | None]:
        """Renew the lease of a tuple that this worker or another one wrote; returns the tuple's new name, and the
        seconds granted."""
        lease_us = granted(microseconds(lease_s))
        return await self._relet(name, item, lease_us, False), seconds(lease_us)

    async def cancel_named(self, name: Name, item: Item) -> None:
        await self._relet(name, item, 0, True)

    async def _relet(self, name: Name, item: Item, lease_us: int, ends: bool) -> Name:
        raise NotImplementedError

    async def notify(
        self, template: Template, lease_s: float | None, hand_back: bytes, transaction: int
    ) -> Registration:
        self._check(transaction)
        lease_us = granted(microseconds(lease_s))
        name = await self.registered(template, lease_us, hand_back)
        return WatchedRegistration(self, name, seconds(lease_us), hand_back)

    async def resume(self, number: int) -> Registration:
        return await resumed(self, number)

    async def registered(self, template: Template, lease_us: int, hand_back: bytes) -> Name:
        """Make a registration. If the call is cancelled, the registration ends."""
        result = await self._result(self.member.register(template, lease_us, hand_back, self._now), None, True)
        if result.full:
            raise Overflow(f"{REGISTRATIONS_MAX:,} registrations are in {self.name!r}: cancel some")
        if result.name == (0, 0):
            raise ended(self.name, "registration")
        name: Name = result.name
        return name

    async def fetched(
        self, registration: Name, seen: list[Name], missed: int, probe: bool, timeout: float | None = None
    ) -> Watched:
        """Acknowledge events, and wait for the next ones; with ``probe`` do not wait. None come if ``timeout`` is
        over."""
        self._check(0)
        number = self.member.fetch(registration, seen, missed, probe, self._now)
        result = await self._result(number, timeout, False)
        watched: Watched | None = None if result is None else result.watched
        return watched or Watched()

    async def renewed(self, registration: Name, lease_us: int, ends: bool) -> float | None:
        """Renew or end the lease of a registration; the seconds granted."""
        self._check(0)
        lease_us = granted(lease_us)
        if not await self._renew(registration, lease_us, ends):
            raise ended(self.name, "registration")
        return seconds(lease_us)

    async def _renew(self, registration: Name, lease_us: int, ends: bool) -> bool:
        """False if the registration is over."""
        raise NotImplementedError

    def _check(self, transaction: int) -> None:
        if self._closed:
            raise Closed(f"the space {self.name!r} is closed: open it again")
        if transaction:
            raise only_durable(self.kind)

    # The end.

    async def flush(self) -> None:
        await self._wait_until(lambda: not self.member.pending)

    async def _wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of this member's part."""
        while not holds():
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._until.append((holds, waiting))
            await waiting

    async def close(self) -> None:
        """Close. When the last user has closed it, this member leaves the space."""
        if self._closed:
            return
        self.users -= 1
        if self.users <= 0:
            self._end_takes()
        try:
            async with asyncio.timeout(5.0):
                if self.users <= 0:
                    await self._wait_until(lambda: not self._takers)
                await self.flush()
        except TimeoutError:
            raise Undelivered(f"{self.member.pending} operations of {self.name!r} are not done") from None
        finally:
            if self.users <= 0:
                await self._go()

    def _end_takes(self) -> None:
        """Takes that wait here are over. What one of them gets all the same, because its question is under way, is
        written again before this member leaves."""
        for number in list(self._taking):
            waiter = self._waiters.pop(number, None)
            if waiter is not None and not waiter.done():
                waiter.set_exception(Closed(f"the space {self.name!r} was closed: open it again"))
                waiter.exception()
                self._cancel(number)
        self._settle()

    async def _go(self) -> None:
        try:
            if self._roster is not None and self._bus.primary and not self._bus.closed:
                try:
                    await self._hand_over()
                except PluribusError as error:
                    log.debug("the space %r was left in a hurry: %s", self.name, error)
        finally:
            await self.leave()

    async def leave(self) -> None:
        """Leave at once, without handing tuples over."""
        self.abandon()
        if self._group is not None:
            await self._group.close()
        if self._roster is not None:
            await self._roster.close()

    async def _hand_over(self) -> None:
        """Hand over the tuples that only this member keeps, before it leaves."""
        assert self._roster is not None
        me = int(self._bus.me)
        if self._roster.machine.epoch.members == (me,):
            return
        await self._roster.call(encode(Enter(me, self.member.worker, False, 0, self._settings)), timeout=2.0)
        try:
            async with asyncio.timeout(3.0):
                while True:
                    epoch = self._roster.machine.epoch
                    if me not in epoch.holders and epoch.opened == epoch.number:
                        break
                    await asyncio.sleep(LEAVE_S)
        except TimeoutError:
            pass
        await self._roster.call(encode(Strike([me])), timeout=2.0)

    def abandon(self) -> None:
        self._closed = True
        self._woken.set()
        for task in self._tasks:
            task.cancel()
        for waiter in [*self._waiters.values(), *[waiting for _, waiting in self._until]]:
            if not waiter.done():
                waiter.set_exception(Closed(f"the space {self.name!r} was closed: open it again"))
                waiter.exception()

    def stats(self) -> dict[str, Any]:
        generation = 0 if self._roster is None else self._roster.generation
        return {**self.member.stats(), "generation": generation, "malformed": self.malformed}

    def validate(self) -> None:
        self.member.validate()


def settings_of(copies: int, key: int) -> str:
    """The settings that must be the same at all members."""
    return f"copies={copies}, key={key}"
