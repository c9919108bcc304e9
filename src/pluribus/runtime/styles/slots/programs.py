"""Programs of invoked slots: a message starts one and is handed over on its standard input.

The member that holds the map occupies each invoked slot for its program. The program's exit code 0 acknowledges the
message; any other code, or a program that does not start, withholds the message, so that it is redelivered until its
time is over. On a port that answers, the program's output is the answer. One message of a slot is handled at a time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput, PluribusError, Refused, Unavailable
from ....slots.plan import INVOKED, Plan, Port, Slot
from .slot import EnrolledSlot, SlotMessage

if TYPE_CHECKING:
    from .buses import Slots

log = logging.getLogger(__name__)

PROGRAM_S_MAX = 60.0
"""Seconds after which a running program is killed, and its message withheld."""
AFTER_FAILURE_S = 0.5
LOOK_S = 2.0
"""Seconds between two looks whether an invoked slot that another member occupies is free."""
ERROR_CHARS_MAX = 400


class Programs:
    """The invoked slots of one bus, occupied by this member."""

    def __init__(self, slots: Slots, bus_name: str, plan: Plan) -> None:
        self._slots = slots
        self._bus_name = bus_name
        self._plan = plan
        self._occupied: list[EnrolledSlot] = []
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        for slot in self._plan.slots:
            if slot.kind == INVOKED:
                self._tasks.append(asyncio.create_task(self._occupy(slot)))

    async def _occupy(self, slot: Slot) -> None:
        """Occupy a slot for as long as the bus runs; if expelled, enrol again."""
        carry, said = None, ""
        while True:
            try:
                held = await self._slots.enroll(
                    slot.name, self._bus_name, "invoked", None, carry, 1_000, False, PROGRAM_S_MAX
                )
            except Refused as error:  # where there is no router, another member runs it as long as that is there
                if str(error) != said:
                    said = str(error)
                    log.info("the programs of slot %r are not started here (%s)", slot.name, said)
                await asyncio.sleep(LOOK_S)
                continue
            except PluribusError as error:
                log.warning("the invoked slot %r cannot be occupied (%s)", slot.name, error)
                await asyncio.sleep(AFTER_FAILURE_S)
                continue
            self._occupied.append(held)
            turn = asyncio.Lock()
            reading = [asyncio.create_task(self._read(held, slot, port, turn)) for port in slot.ports if not port.sends]
            try:
                await asyncio.gather(*reading)
            except PluribusError:
                carry = held.carry()
            finally:
                for task in reading:
                    task.cancel()
                self._occupied.remove(held)
            if held.state == "out":
                return

    async def _read(self, held: EnrolledSlot, slot: Slot, port: Port, turn: asyncio.Lock) -> None:
        async for message in held.port(port.name):
            async with turn:
                await self._handle(slot, port, message)

    async def _handle(self, slot: Slot, port: Port, message: SlotMessage) -> None:
        try:
            printed = await run_program(slot, port, message.body)
        except Unavailable as error:
            if message.asks:
                message.fail(str(error))
            else:
                log.warning("%s; its message comes again", error)
                message.withhold()
                await asyncio.sleep(AFTER_FAILURE_S)
            return
        if message.asks:
            try:
                message.reply(decoded(port.answer, printed))
            except BadInput as error:
                message.fail(f"the program of slot {slot.name!r} printed what is no answer: {error}")
        else:
            message.acknowledge()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for held in list(self._occupied):
            await held.close()


async def run_program(slot: Slot, port: Port, body: Any) -> bytes:
    """Start the slot's program for one message; returns its output. ``Unavailable`` says why it failed."""
    words = shlex.split(slot.program)
    environment = {**os.environ, "PLURIBUS_SLOT": slot.name, "PLURIBUS_PORT": port.name}
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unavailable(f"the program {slot.program!r} of slot {slot.name!r} does not start ({reason})") from None
    try:
        async with asyncio.timeout(PROGRAM_S_MAX):
            printed, complaints = await process.communicate(encoded(body))
    except TimeoutError:
        raise Unavailable(f"the program of slot {slot.name!r} took more than {PROGRAM_S_MAX:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        last = complaints.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        reason = last[0][:ERROR_CHARS_MAX]
        raise Unavailable(f"the program of slot {slot.name!r} ended with {process.returncode}: {reason}")
    return printed


def encoded(body: Any) -> bytes:
    """A body as a program reads it: bytes and text unchanged, data as JSON."""
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body, default=str).encode()


def decoded(type: str, printed: bytes) -> Any:
    """The answer in a program's output: of the port's type; else the JSON in it, or its text."""
    if type == "bytes":
        return printed
    text = printed.decode(errors="replace").rstrip("\n")
    if type == "text":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
