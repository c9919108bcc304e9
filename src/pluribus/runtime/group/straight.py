"""The straight way: one function does what all layers of the usual stack do with the usual frame.

Most frames are alike: data of a plain group, the next of their stream, from a member that nobody suspects. For such a
frame the layers make a few additions. Calling the ten functions that make them costs more than the additions, above all
after a pause, when they are not in the processor's caches.

This is no protocol of its own. It changes the layers' state as the layers would, in their order. If anything is unusual
it does nothing, and the frame goes the long way through all layers. It is written in C (``_speed/c/straight.h``); where
that was not compiled there is only the long way. If you change a layer, change it too:
``tests/_speed/test_straight.py`` plays the same worlds with the straight way and without, and compares every datagram.
When a stack is made, the straight way finds its fields by name and checks their types; if a name or a type has changed,
it is not used, and a warning says so.

It is used only for stacks of exactly these layers, so that a layer of your own between them sees every frame.
"""

from __future__ import annotations

import logging
from functools import cache

from ..._speed.quick import Straight
from ...core.ids import MemberId
from ...core.limits import BATCH_BYTES_MAX, PATH_BYTES_LOOPBACK
from ...group.channel import Channel, Numbers
from ...group.dispatch import LONE_BYTES_MAX, LONE_S, Dispatch
from ...group.outgoing import Outgoing as OpenStream
from ...layers.causal import Causal
from ...layers.detector import Detector, Peer
from ...layers.fragment import Fragment
from ...layers.inquiry import Inquiry
from ...layers.introductions import Introductions
from ...layers.membership import Membership
from ...layers.reliable import Reliable
from ...layers.reliable.headers import Data
from ...layers.reliable.incoming import Incoming
from ...layers.reliable.outgoing import Outgoing
from ...layers.reliable.streams import FRAME_CHARGE_BYTES
from ...layers.semantic import Semantic
from ...layers.total import Total
from ...layers.transport import Transport
from ...stack.stack import Stack
from ...wire.bodies import BYTES
from ...wire.codec import VERSION
from ...wire.questions import MARKED

log = logging.getLogger("pluribus")

USUAL = (
    *(Transport, Fragment, Introductions, Inquiry, Detector, Reliable),
    *(Membership, Causal, Semantic, Total, Dispatch),
)


@cache
def samples() -> tuple[object, ...]:
    """An object of each type that C reads as a structure: it looks at them when the way is made."""
    channel = Channel("", 1, MemberId(1), PATH_BYTES_LOOPBACK, lambda frame: None, lambda event: None, Numbers())
    return Data(0, 0, 0), Incoming(0), Outgoing(0), Peer("", ("", 0), 0.0), channel, channel.out


def go_straight(stack: Stack) -> None:
    """Have the usual frames of a stack go the straight way, if it is the usual stack, and the way was compiled."""
    if Straight is None or tuple(map(type, stack.layers)) != USUAL:
        return
    transport, _, _, _, detector, reliable, _, causal, semantic, total, dispatch = stack.layers
    assert isinstance(transport, Transport)
    assert isinstance(detector, Detector)
    assert isinstance(reliable, Reliable)
    assert isinstance(dispatch, Dispatch)
    codec = stack.node.codec
    try:
        way = Straight(
            samples=samples(),
            transport=transport,
            reliable=reliable,
            dispatch=dispatch,
            engine=stack.ports.engine,
            run=stack.run,
            decode=codec.unpack,
            pack=codec.pack,
            prefix=codec.prefix,
            now=stack.ports.clock.now,
            peers=detector._peers,
            streams_in=reliable._in,
            streams_out=reliable._out,
            stamps=reliable._stamps,
            closing=reliable._closing,
            channels=dispatch.channels,
            marked=MARKED,
            pass_up=reliable.pass_up,
            watched=reliable._watched,
            others_up=(semantic.concerns(), total.concerns()),
            others_down=(reliable._watched, causal.marks(), semantic.marks(), total.marks()),
            me=stack.node.me,
            bus=codec.tag,
            version=VERSION,
            charge=FRAME_CHARGE_BYTES,
            batch=BATCH_BYTES_MAX,
            lone=LONE_BYTES_MAX,
            pause=LONE_S,
            plain=BYTES,
            data=Data,
            incoming=Incoming,
            outgoing=Outgoing,
            open=OpenStream,
            peer=Peer,
            channel=Channel,
        )
    except (AttributeError, TypeError) as error:
        log.warning("frames do not go straight, only the long way, more slowly: %s", error)
        return
    transport.receive = way.receive  # type: ignore[method-assign]
    dispatch.send_alone = way.send_alone  # type: ignore[method-assign]
