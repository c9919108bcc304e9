"""The communications manager: it lists software buses, shows their slots, and starts tools.

There is no registry: routers advertise their buses, and a bus that is cancelled or silent is forgotten. Source: the
report, section 3.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from ....core.errors import BadInput, NoMembers, Refused, Unavailable
from ....core.ids import ALL
from ....slots.plan import Plan, Slot
from ....slots.words import Advertise, AnsMap, Challenge, Claims, NegAck, Proofs, ReqMap, Seat, Word

if TYPE_CHECKING:
    from .buses import BusDirectory, Slots

LISTEN_S = 0.3
"""Seconds for which answers to an enquiry are waited for."""
ASK_S = 0.25
SHOW_S = 5.0


class BusShown(msgspec.Struct, frozen=True):
    """The present state of a bus."""

    name: str
    by: str
    plan: Plan
    """The plan, with the present connections."""
    seats: tuple[Seat, ...]
    waiting: tuple[str, ...]
    """Required slots that lack occupants."""
    version: tuple[int, int]
    router: str = ""
    """The occupant of the router's slot, which every bus with a router has and which no file names."""

    def occupants(self, slot: str) -> list[Seat]:
        return [seat for seat in self.seats if seat.slot == slot]

    @property
    def running(self) -> bool:
        return not self.waiting


class CommunicationsManager:
    """Made by ``bus.communications()``."""

    def __init__(self, slots: Slots, directory: BusDirectory) -> None:
        self._slots = slots
        self._directory = directory
        self.started: list[asyncio.subprocess.Process] = []
        """Tools that were started here."""

    async def buses(self, *, listen_s: float = LISTEN_S) -> list[Advertise]:
        """The advertised buses, by name. The first call waits for the answers to an enquiry."""
        self._directory.enquire()
        loop = asyncio.get_running_loop()
        until = loop.time() + listen_s
        while (left_s := until - loop.time()) > 0:
            await self._directory.changed(left_s)
        return list(self._directory.here().values())

    async def changes(self) -> AsyncIterator[list[Advertise]]:
        """The buses, now and whenever a bus is advertised, cancelled, or silent for too long."""
        self._directory.enquire()
        while not self._directory.station.closed:
            yield list(self._directory.here().values())
            await self._directory.changed(1.0)

    async def show(self, name: str, *, key: str | None = None, timeout: float = SHOW_S) -> BusShown:
        """Slots, connections and occupants of a bus. ``key`` is the passphrase of a role that may see them. Raises
        ``Refused`` if the role may not, ``NoMembers`` if no router answers."""
        answer = await self._ask(name, key, timeout, hand_over=False)
        return BusShown(name, answer.by, answer.plan, answer.seats, answer.waiting, answer.version, answer.router)

    async def take_over(self, name: str, *, key: str | None = None, timeout: float = SHOW_S) -> bytes:
        """Have the router of a bus stop, and return its map; ``bus.slots(...)`` goes on with this map here. Only roles
        that may reconfigure are allowed to."""
        answer = await self._ask(name, key, timeout, hand_over=True)
        if not answer.state:
            raise BadInput(f"bus {name!r} has no router that could move: all its members have the map")
        return answer.state

    async def _ask(self, name: str, key: str | None, timeout: float, *, hand_over: bool) -> AnsMap:
        station = self._directory.station
        nonce = self._slots.bus._random.getrandbits(62) + 1
        client = self._slots.client
        asked = ReqMap(nonce, name, b"", (), key is not None or client, hand_over, () if client else None)
        question = _Question(asked, station.now())
        station.add(question)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    answer = await question.answered
                    if not isinstance(answer, Challenge):
                        break
                    proofs: Proofs = ()
                    if key is not None:
                        proofs = await self._slots.proofs(answer, key)
                    claims = self._slots.claims(answer)
                    question.ask_again(answer.challenge, proofs or (("nobody", b""),), claims, station.now())
                    station.flush()
        except TimeoutError:
            raise NoMembers(f"bus {name!r} did not answer in {timeout:g} s: look with `pluribus slots ls`") from None
        finally:
            station.remove(question)
        if isinstance(answer, NegAck):
            raise Refused(answer.reason)
        return answer

    async def start(self, name: str, slot: str, *, key: str | None = None) -> asyncio.subprocess.Process:
        """Start the tool of a slot on this machine. It finds the bus in ``$PLURIBUS_URL``, the software bus in
        ``$PLURIBUS_SLOTS`` and its slot in ``$PLURIBUS_SLOT``."""
        shown = await self.show(name, key=key)
        found = shown.plan.slot(slot)
        if found is None:
            names = ", ".join(each.name for each in shown.plan.slots)
            raise BadInput(f"bus {name!r} has no slot {slot!r}: it has {names}")
        if not found.program:
            raise BadInput(f"slot {slot!r} of bus {name!r} has no program: write one into its file")
        process = await started(found, self._slots.bus.url.text, name)
        self.started.append(process)
        return process


async def started(slot: Slot, url: str, name: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "PLURIBUS_URL": url, "PLURIBUS_SLOTS": name, "PLURIBUS_SLOT": slot.name}
    try:
        return await asyncio.create_subprocess_exec(
            *shlex.split(slot.program), env=environment, stdin=asyncio.subprocess.DEVNULL
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unavailable(f"the program {slot.program!r} of slot {slot.name!r} does not start ({reason})") from None


class _Question:
    """A machine that asks for a map until it gets an answer."""

    def __init__(self, word: ReqMap, now: float) -> None:
        self.word = word
        self.out: list[tuple[int, Word]] = []
        self._next_at = now
        self.answered: asyncio.Future[AnsMap | NegAck | Challenge] = asyncio.get_running_loop().create_future()

    @property
    def due_at(self) -> float | None:
        return self._next_at

    def tick(self, now: float) -> None:
        self._next_at = now + ASK_S
        self.out.append((ALL, self.word))

    def take(self, sender: int, word: Word, now: float) -> None:
        if isinstance(word, AnsMap | Challenge):
            mine = word.nonce == self.word.nonce
        else:
            mine = isinstance(word, NegAck) and word.about == self.word.nonce
        if mine and not self.answered.done():
            self.answered.set_result(word)

    def ask_again(self, challenge: bytes, proofs: Proofs, claims: Claims, now: float) -> None:
        self.word = msgspec.structs.replace(self.word, challenge=challenge, proofs=proofs, claims=claims)
        self.answered = asyncio.get_running_loop().create_future()
        self._next_at = now

    def validate(self) -> None:
        pass
