"""Waiting until every receiver has what was sent: ``send(..., wait="stable")``, and the closing of a bus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...core.errors import BadInput, Closed, Uncertain, Undelivered
from ...core.ids import ALL, MemberId, MessageId
from ...group.channel import Channel
from ...group.dispatch import Dispatch
from ...layers.reliable import Reliable
from ...stack.events import Unconfirmed
from ..loop.futures import has_come

LOOK_S = 0.1
"""How often undelivered messages are looked at again, while a bus is being closed."""


class Stability:
    """The messages of one group for which callers wait."""

    def __init__(self, channel: Channel, dispatch: Dispatch, now: Callable[[], float]) -> None:
        self._channel = channel
        self._dispatch = dispatch
        self._now = now
        self._waiting: dict[asyncio.Future[bool], None] = {}
        """In their order, which a set does not keep: a world must do the same every time."""

    def check(self, wait: str) -> None:
        """``BadInput`` if ``wait`` is unknown, or not possible on this stack."""
        if wait != "stable":
            raise BadInput(f"wait={wait!r} is nothing to wait for: use wait='stable', or leave it out")
        if not self._dispatch.cuts:
            raise BadInput("this stack does not know who has a message: connect(..., stack='views') does")

    async def confirmed(self, message: MessageId, to: int, deadline: float | None) -> MessageId:
        """The message's identity, once every member that it is for has it."""
        channel = self._channel
        over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[over] = None

        def told(has: bool) -> None:
            if not over.done():
                over.set_result(has)

        forget = self._dispatch.confirm((channel.number, int(to)), message[1] + 1, told)
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - self._now(), 0.0)):
                await over
        except TimeoutError:
            if not has_come(over):
                raise Uncertain(
                    f"message {message[1]} to {channel.name!r} was sent, but not all are known to have it: wait "
                    "longer, or look at its view",
                    message,
                ) from None
        finally:
            self._waiting.pop(over, None)
            forget()
        if not over.result():
            raise Uncertain(
                f"message {message[1]} to {channel.name!r} was sent, but receivers were cut off: not all may have it",
                message,
            )
        return message

    def close(self) -> None:
        for over in self._waiting:
            if not over.done():
                over.set_exception(Closed(f"group {self._channel.name!r} was closed before everybody had the message"))


async def drain(dispatch: Dispatch, reliable: Reliable, timeout: float) -> None:
    """Return when every receiver has what this member sent so far; ``Undelivered`` if that takes longer."""
    wanted = _unconfirmed(dispatch, reliable)
    if not wanted:
        return
    streams = [_Stream(dispatch, sent) for sent in wanted]
    try:
        async with asyncio.timeout(timeout):
            while not await _over(streams):
                left = {(sent.group, sent.to) for sent in _unconfirmed(dispatch, reliable)}
                for stream in streams:  # a receiver may have left before this began, and then nobody tells
                    if (stream.sent.group, stream.sent.to) not in left:
                        stream.told(True)
    except TimeoutError:
        waited_for = {(sent.group, sent.to) for sent in wanted}
        lost = [sent for sent in _unconfirmed(dispatch, reliable) if (sent.group, sent.to) in waited_for]
        if lost:
            raise Undelivered(f"{_told(lost)} after {timeout:g} s: close(timeout=) gives it more time") from None
        return
    finally:
        for stream in streams:
            stream.forget()
    lost = [stream.sent for stream in streams if not stream.over.result()]
    lost = [sent for sent in lost if sent.to == ALL]  # a single receiver that is gone needs nothing
    if lost:
        raise Undelivered(f"{_told(lost)}, because this member was cut off from them")


async def _over(streams: list[_Stream]) -> bool:
    """Whether all were told, after a moment at most."""
    _, waiting = await asyncio.wait([stream.over for stream in streams], timeout=LOOK_S)
    return not waiting


class _Stream:
    """One stream on its way to everybody."""

    def __init__(self, dispatch: Dispatch, sent: Unconfirmed) -> None:
        self.sent = sent
        self.over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.forget = dispatch.confirm((sent.group, sent.to), sent.upto, self.told)

    def told(self, has: bool) -> None:
        if not self.over.done():
            self.over.set_result(has)


def _unconfirmed(dispatch: Dispatch, reliable: Reliable) -> list[Unconfirmed]:
    """Messages that some receiver lacks or may lack: a line of text a stream."""
    found = {(sent.group, sent.to): sent for sent in reliable.unconfirmed()}
    for unsent in dispatch.unsent():
        sent = found.get((unsent.group, unsent.to), unsent)
        messages = unsent.messages + (sent.messages if sent is not unsent else 0)
        found[(unsent.group, unsent.to)] = Unconfirmed(unsent.group, unsent.to, unsent.upto, messages, sent.lacking)
    return list(found.values())


def _told(lost: list[Unconfirmed]) -> str:
    messages = sum(sent.messages for sent in lost)
    lacking = sorted({member for sent in lost for member in sent.lacking})
    whom = ", ".join(repr(MemberId(member)) for member in lacking) or "their receivers"
    return f"{messages} messages have not reached {whom}"
