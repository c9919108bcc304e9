"""Compress: frames that are worth it travel smaller.

Theory of operation
-------------------
A frame whose bodies have more than ``threshold`` bytes is encoded and compressed (zlib, level 1, because the network is
the bottleneck where this layer is used). If that saves a tenth, a frame with the compressed bytes goes down in its
place. If not, the frame goes down as it is, and the next few frames are not tried: bodies that do not shrink (pictures,
ciphertext) come in runs.

Promises: what goes up is the frame that came down at the other side. Nobody makes a member allocate more than
``FRAME_BYTES_MAX``: the size is announced, checked, and never exceeded while decompressing.

Put this layer above ``secure``, because sealed bytes do not shrink. Leave it out if one frame may hold both a secret
and a text that an attacker chose, and if the attacker sees the lengths of frames: these would tell of the secret.
"""

from __future__ import annotations

import zlib
from typing import Annotated, Any

import msgspec

from ..core.errors import BadStack, MalformedFrame
from ..core.frame import Frame, Header
from ..core.limits import FRAME_BYTES_MAX
from ..stack.layer import Layer

THRESHOLD_BYTES = 1_024
LEVEL = 1
SHARE_MAX = 0.9
"""A frame that stays larger than this share of its size is sent uncompressed."""
SKIPPED_MAX = 64
"""The most frames that are not tried after frames that did not shrink."""

_decode_bodies = msgspec.msgpack.Decoder(tuple[memoryview]).decode


class Packed(Header, tag=14):
    """The body is a compressed frame; this is its size before."""

    size: Annotated[int, msgspec.Meta(ge=1, le=FRAME_BYTES_MAX)]


class Compress(Layer):
    """compresses large frames"""

    name = "compress"
    requires = frozenset({"datagrams"})
    provides = frozenset({"compression"})
    headers = (Packed,)

    def __init__(self, threshold: int = THRESHOLD_BYTES) -> None:
        if threshold < 0:
            raise BadStack(f"compress(threshold={threshold}) cannot be: use 0 or more bytes")
        self._threshold = threshold
        self._skip = 0
        self._skip_next = 0
        self.tried = 0
        self.packed = 0
        self.saved_bytes = 0
        self.refused = 0

    def options(self) -> dict[str, Any]:
        return {"threshold": self._threshold}

    def down(self, frame: Frame) -> None:
        if frame.size > self._threshold:
            if self._skip:
                self._skip -= 1
            else:
                frame = self._pack(frame)
        self.pass_down(frame)

    def _pack(self, frame: Frame) -> Frame:
        plain = self.node.codec.encode(frame)
        packed = zlib.compress(plain, LEVEL)
        self.tried += 1
        if len(packed) > SHARE_MAX * len(plain) or len(plain) > FRAME_BYTES_MAX:
            self._skip = self._skip_next = min(2 * self._skip_next + 1, SKIPPED_MAX)
            return frame
        self._skip_next = 0
        self.packed += 1
        self.saved_bytes += len(plain) - len(packed)
        # Group and count stay visible to the layers below: they tell what is meant for whom.
        return Frame(
            sender=frame.sender,
            to=frame.to,
            group=frame.group,
            count=min(frame.count, 1),
            headers=[Packed(len(plain))],
            bodies=[packed],
        )

    def up(self, frame: Frame) -> None:
        header = frame.headers[-1] if frame.headers else None
        if not isinstance(header, Packed):
            self.pass_up(frame)
            return
        inner = self._unpack(frame, header)
        if inner is None:
            self.refused += 1
        else:
            self.pass_up(inner)

    def _unpack(self, frame: Frame, packed: Packed) -> Frame | None:
        try:
            (data,) = _decode_bodies(frame.bodies)
            stream = zlib.decompressobj()
            plain = stream.decompress(data, packed.size + 1)  # one byte more shows that there is more
            if len(plain) != packed.size or not stream.eof or stream.unused_data:
                return None
            inner = self.node.codec.decode(plain)
        except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error, MalformedFrame):
            return None
        nested = bool(inner.headers) and isinstance(inner.headers[-1], Packed)
        return None if nested or inner.sender != frame.sender or inner.to != frame.to else inner

    def stats(self) -> dict[str, Any]:
        return {
            "tried": self.tried,
            "packed": self.packed,
            "saved_bytes": self.saved_bytes,
            "refused": self.refused,
        }
