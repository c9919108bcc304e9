"""Trace files: a run of a real member, recorded stimulus by stimulus and replayed from the file.

``connect(url, trace=PATH)`` writes one. The first record says what is needed to build the same stack; ``replay`` builds
it, feeds it the rest, and compares everything that it sends with what was sent then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import IO, Any

import msgspec

from ...core.errors import BadInput, PluribusError
from ...core.ports import Address
from ...group.dispatch import Dispatch
from ...layers.transport import Transport
from ...stack.layer import Layer, Node
from ...stack.specification import build
from ...stack.stack import Stack
from ...stack.trace import Replay, ReplayTop, file_writer, read_records
from ..group.secret import catalogue, secret_from

log = logging.getLogger(__name__)


class Beginning(msgspec.Struct, array_like=True):
    """The first record of a trace file."""

    format: str
    stack: str
    bus: str
    name: str
    me: int
    address: Address
    path_bytes: int
    buffer_bytes: int
    broadcasts: bool = True
    long_bytes: int = 0
    listen_s: float | None = None
    """Of the port ``founding``; None: the member had none."""


FORMAT = "pluribus trace 1"


class TraceFile:
    """Gives ``Trace`` its writer; the beginning is written when the engine is open and its address known."""

    def __init__(self, path: str | PathLike[str]) -> None:
        try:
            self._file: IO[bytes] = Path(path).open("wb")  # noqa: SIM115 - closed with the bus
        except OSError as error:
            raise BadInput(f"the trace {path} cannot be written ({error.strerror}): name a writable file") from None
        self._path = path
        self._write = file_writer(self._file.write)
        self._waiting: list[bytes] | None = []

    def write(self, record: bytes) -> None:
        if self._waiting is not None:
            self._waiting.append(record)
        elif not self._file.closed:
            try:
                self._write(record)
            except OSError as error:
                self._give_up(error)

    def begin(self, beginning: Beginning) -> None:
        self._write(msgspec.msgpack.encode(beginning))
        for record in self._waiting or ():
            self._write(record)
        self._waiting = None

    def close(self) -> None:
        if not self._file.closed:
            try:
                self._file.close()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """A full disk ends the trace, not the run."""
        log.warning("the trace %s is not written any further (%s): free some disk space", self._path, error.strerror)
        with suppress(OSError):  # it says the same again
            self._file.close()


Top = Callable[[Replay, type[Layer], int], ReplayTop]


def replay(path: str | PathLike[str]) -> dict[str, Any]:
    """Run a trace file again; ``BadInput`` says where the run leaves the trace."""
    beginning, matched = run_again(path, lambda story, stands_for, _: ReplayTop(story, stands_for))
    return {"trace": str(path), "stack": beginning.stack, "records": matched, "same": True}


def run_again(path: str | PathLike[str], top: Top) -> tuple[Beginning, int]:
    """Run a trace file again below what ``top`` makes, of the story, the layer that it stands for and the member's id;
    how it began, and how many records matched. ``BadInput`` says where the run leaves the trace."""
    try:
        records = list(read_records(Path(path).read_bytes()))
        beginning = msgspec.msgpack.decode(records[0], type=Beginning)
        if beginning.format != FORMAT:
            raise ValueError(beginning.format)
    except PluribusError:
        raise
    except (OSError, IndexError, ValueError, msgspec.MsgspecError) as error:
        raise BadInput(f"{path} is no trace ({error}): connect(url, trace=PATH) writes one") from None
    try:
        return beginning, _had_again(beginning, records[1:], top)
    except PluribusError:
        raise
    except Exception as error:  # noqa: BLE001 - records that were changed make layers do what no run makes them do
        raise BadInput(f"{path} was changed after it was written ({error}): record the run again") from None


def _had_again(beginning: Beginning, records: list[bytes], make_top: Top) -> int:
    shape = (beginning.address, beginning.path_bytes, beginning.buffer_bytes)
    story = Replay(
        records,
        *shape,
        broadcasts=beginning.broadcasts,
        long_bytes=beginning.long_bytes,
        listen_s=beginning.listen_s,
    )
    known = catalogue(secret_from(None))
    layers = [layer for layer in build(beginning.stack, known) if layer.name != Dispatch.name]
    transport = next(layer for layer in layers if isinstance(layer, Transport))
    top = make_top(story, Dispatch, beginning.me)
    stack = Stack([*layers, top], story.ports, Node(beginning.me, beginning.name, beginning.bus))
    stack.start()
    return story.run(stack, transport.receive, top)
