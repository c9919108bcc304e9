"""The straight way: what all layers of the usual stack do with the usual frame, at one go.

Most frames are alike: data of a plain group, the next of their stream, from a member that nobody suspects. What the
layers do with such a frame is a few additions, and the ten functions in which they do them cost more than these, above
all after a pause, when nothing of them is in the processor's caches.

This is no protocol of its own. ``up`` and ``down`` do to the layers' own state what the layers would do, in their
order; where anything is unusual they do nothing, and the frame goes the long way through all of them. Who changes a
layer must look here too: ``tests/sim/test_straight.py`` plays the same worlds with the straight way and without, and
wants every datagram of them to be the same.

Only for stacks of exactly these layers: one that was put between them, or in the place of one, sees every frame.
"""

from __future__ import annotations

from collections.abc import Callable

from ..core.frame import Frame
from ..core.ids import ALL
from ..core.limits import BATCH_BYTES_MAX
from ..group.channel import Channel
from ..group.dispatch import Dispatch
from ..layers.causal import Causal
from ..layers.detector import Detector
from ..layers.fragment import Fragment
from ..layers.inquiry import Inquiry
from ..layers.introductions import Introductions
from ..layers.membership import Membership
from ..layers.reliable import Reliable
from ..layers.reliable.headers import Data
from ..layers.reliable.streams import FRAME_CHARGE_BYTES
from ..layers.semantic import Semantic
from ..layers.total import Total
from ..layers.transport import Transport
from ..stack.stack import Stack
from ..wire.bodies import Kind
from ..wire.codec import VERSION
from ..wire.questions import MARKED

USUAL = (
    *(Transport, Fragment, Introductions, Inquiry, Detector, Reliable),
    *(Membership, Causal, Semantic, Total, Dispatch),
)


def go_straight(stack: Stack) -> None:
    """Have the usual frames of a stack go the straight way, if it is the usual stack."""
    if tuple(map(type, stack.layers)) != USUAL:
        return
    transport, _, _, _, detector, reliable, _, causal, semantic, total, dispatch = stack.layers
    assert isinstance(transport, Transport)
    assert isinstance(detector, Detector)
    assert isinstance(reliable, Reliable)
    assert isinstance(causal, Causal)
    assert isinstance(semantic, Semantic)
    assert isinstance(total, Total)
    assert isinstance(dispatch, Dispatch)
    transport.straight = _up(detector, reliable, semantic, total, dispatch)
    dispatch.alone = _down(transport, reliable, causal, semantic, total)


def _up(
    detector: Detector, reliable: Reliable, semantic: Semantic, total: Total, dispatch: Dispatch
) -> Callable[[Frame], bool]:
    now, channels, peers = detector.ports.clock.now, dispatch.channels, detector._peers
    streams, stamps, closing, watched = reliable._in, reliable._stamps, reliable._closing, reliable._watched
    in_semantic, in_total = semantic.concerns(), total.concerns()

    def up(frame: Frame) -> bool:
        """From another member; whether that was all."""
        headers, sender, group, first = frame.headers, frame.sender, frame.group, frame.first
        if len(headers) != 1 or frame.to != ALL or frame.kind in MARKED:
            return False
        data = headers[0]
        stream, peer, channel = streams.get((sender, group, ALL)), peers.get(sender), channels.get(group)
        if type(data) is not Data or stream is None or peer is None or channel is None:
            return False
        if first != stream.next or stream.ahead or data.stamp != stamps.get(group, reliable._stamp):
            return False
        if reliable._frozen or closing or group in watched or peer.suspected or peer.asked_at >= 0:
            return False
        if group in in_semantic or group in in_total or not frame.count:
            return False
        if channel.relay is not None or channel.seal is not None or channel.state is not None:
            return False
        # The detector
        peer.heard_at = now()
        # The reliable layer
        count, size = frame.count, frame.size
        cost, upto = size + FRAME_CHARGE_BYTES, first + count
        if upto > stream.known:
            stream.known = upto
        stream.next = upto
        stream.asked = 0
        if data.offset + cost > stream.end:
            stream.end = data.offset + cost
        stream.delivered += cost
        if data.stable > stream.stable:
            stream.forget_upto(data.stable)
        if not stream.granted:
            reliable._answer((sender, group, ALL), False)
        stream.kept.append(frame)
        stream.kept_bytes += size
        reliable.frames_in += 1
        reliable.messages_in += count
        bare = Frame(
            sender=sender,
            group=group,
            first=first,
            count=count,
            size=size,
            kind=frame.kind,
            headers=[],
            bodies=frame.bodies,
        )
        # The groups
        if dispatch.observe is not None:
            dispatch.observe(bare)
        dispatch._first = True
        channel.inbox.append(bare)
        channel.on_arrival()
        return True

    return up


def _down(
    transport: Transport, reliable: Reliable, causal: Causal, semantic: Semantic, total: Total
) -> Callable[[Channel, bytes, Kind], None]:
    now, me, codec = reliable.ports.clock.now, reliable.node.me, reliable.node.codec
    streams, watched, pack = reliable._out, reliable._watched, codec.pack
    in_causal, in_semantic, in_total = causal.marks(), semantic.marks(), total.marks()

    def down(channel: Channel, body: bytes, kind: Kind) -> None:
        """A message that goes alone, to all."""
        out, group = channel.out, channel.number
        stream = streams.get((group, ALL))
        if stream is None or group in watched or len(stream.acked) <= (me in stream.acked):
            out.send_alone(body, kind)
            return
        if group in in_causal or group in in_semantic or group in in_total:
            out.send_alone(body, kind)
            return
        # The group
        first, size = out.first, len(body)
        out.first = first + 1
        out.batched = 1
        # The reliable layer
        frame = Frame(
            version=VERSION,
            bus=codec.tag,
            sender=me,
            group=group,
            first=first,
            count=1,
            size=size,
            kind=kind,
            headers=[Data(stream.offset, stream.stable, stream.stamp)],
            bodies=[body],
        )
        reliable.frames_out += 1
        reliable.messages_out += 1
        stream.told_stable = stream.stable
        stream.next = first + 1
        stream.offset += size + FRAME_CHARGE_BYTES
        stream.sent_at = now()
        if me in stream.acked:
            stream.acked[me] = first + 1
            if not reliable._echo:
                reliable.stimulus(reliable._hear_self)
            reliable._echo.append(frame)
        stream.kept.append(frame)
        stream.kept_bytes += size
        # The transport
        datagram = pack(frame)
        transport.unsettled = True
        if len(datagram) > transport._long_bytes:
            transport._cut(ALL, datagram)
        else:
            transport._to_all.append(datagram)
        # The reliable layer again
        if reliable._status is None:
            reliable._watch()
        if stream.told != BATCH_BYTES_MAX or min(stream.limits.values()) - stream.offset < BATCH_BYTES_MAX:
            reliable._tell_credit((group, ALL), stream)

    return down
