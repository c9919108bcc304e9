"""One frame of every sort that a best-effort bus sends, also cut, sealed and compressed, and the way to record them.

Frames of every release stay in ``tests/wire/frames/MAJOR.MINOR`` for ever, and ``test_recorded_frames.py`` decodes all
of them with today's code. When the wire changes, raise ``MINOR`` (or ``MAJOR``) in ``wire/codec.py``, add the new sorts
of frames here, and record them::

    python -m tests.wire.samples

That writes the folder of the current version. Folders of versions that were released are never written again.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec

from pluribus.core.frame import Frame, Parents, Piece, Refused
from pluribus.group.dispatch import Dispatch
from pluribus.layers.compress import Compress, Packed
from pluribus.layers.fragment import Cut, Fragment
from pluribus.layers.presence import Bye, Hello, Presence, Refusal
from pluribus.layers.secure import Secure
from pluribus.layers.secure import headers as seals
from pluribus.layers.transport import Transport
from pluribus.layers.window import Ack, Granted, Probe, Sent, Window
from pluribus.wire.bodies import BYTES, DATA, TEXT, encode_body, join_bodies, register
from pluribus.wire.codec import MAJOR, MINOR, Codec
from pluribus.wire.questions import ABSENT, ANSWER, CALL, FAILED, QUESTION, Answered, Asked, Called, wrapped

FRAMES = Path(__file__).parent / "frames"
BUS = "recorded"
ME, OTHER, GROUP = 0x1234_5678_9ABC_DEF0, 77, 0xABCD_EF01_2345


@register
@dataclasses.dataclass(frozen=True)
class RecordedTick:
    symbol: str
    price: float


BODIES: dict[str, tuple[Any, list[Any]]] = {
    "bytes": (BYTES, [b"", b"one", bytes(range(256))]),
    "text": (TEXT, ["", "größe", "東京"]),
    "plain": (DATA, [None, True, -1, 1.5, [1, [2]], {"key": {"deep": "value"}}]),
    "type": ("RecordedTick", [RecordedTick("IBM", 101.25), RecordedTick("SAP", 0.0)]),
    "question": (QUESTION, [Asked(1, wrapped(b"raw")), Asked(2, wrapped(RecordedTick("IBM", 1.0)), (ME, OTHER))]),
    "call": (CALL, [Called(3, "add"), Called(4, "add", (wrapped(1), wrapped("x")), {"by": wrapped(None)})]),
    "answers": (ANSWER, [Answered(1), Answered(2, FAILED, wrapped(["KeyError", "'x'"])), Answered(3, ABSENT)]),
}


def codec() -> Codec:
    """One that knows the headers of the recorded layers."""
    layers = (Transport, Fragment, Secure, Compress, Presence, Window, Dispatch)
    return Codec(BUS, [header for layer in layers for header in layer.headers])


def data_frame(name: str) -> Frame:
    kind, bodies = BODIES[name]
    encoded = bodies if kind == BYTES else [encode_body(body)[1] for body in bodies]
    return Frame(
        sender=ME,
        group=GROUP,
        first=41,
        count=len(bodies),
        size=sum(map(len, encoded)),
        kind=kind,
        headers=[Sent(65_536, 3)],
        bodies=join_bodies(kind, encoded),
    )


def answer() -> Frame:
    frame = data_frame("text")
    frame.headers.insert(0, Parents([None, (OTHER, 5), (ME, 1 << 40)]))
    return frame


def samples() -> dict[str, Frame]:
    return {
        "hello": Frame(sender=ME, headers=[Hello(9, "größe", ("10.0.0.5", 7001), "ab" * 8, [1, GROUP], True)]),
        "hello_to_one": Frame(sender=ME, to=OTHER, headers=[Hello(10, "x", ("inproc-1", 0), "", [], False)]),
        "bye": Frame(sender=ME, headers=[Bye()]),
        "refusal": Frame(sender=ME, to=OTHER, headers=[Refusal("another stack: give both the same")]),
        "ack": Frame(sender=ME, to=OTHER, headers=[Ack([Granted(GROUP, 0, 44, 1 << 40, 3), Granted(1, ME, 0, 5, 1)])]),
        "probe": Frame(sender=ME, to=OTHER, headers=[Probe(GROUP, 0, 1 << 40, 3)]),
        **{f"data_{name}": data_frame(name) for name in BODIES},
        "data_answer": answer(),
        "data_piece": Frame(
            sender=ME,
            group=GROUP,
            first=41,
            count=1,
            size=5,
            headers=[Piece(39, 2, 3, "RecordedTick")],
            bodies=[b"piece"],
        ),
        "refused": Frame(sender=ME, to=OTHER, headers=[Refused(1)]),
        "cut": Frame(sender=ME, headers=[Cut(1 << 40, 2, 3)], bodies=[b"a third of a frame"]),
        "packed": Frame(sender=ME, group=GROUP, count=1, headers=[Packed(5)], bodies=[b"compressed"]),
        "sealed": Frame(sender=ME, headers=[seals.Sealed(1 << 62, 9)], bodies=[b"ciphertext"]),
        "sealed_hello": Frame(
            sender=ME,
            to=OTHER,
            headers=[seals.Sealed(seals.PAIR, 10, seals.Hello(bytes(range(32)), bytes(range(32, 64))))],
            bodies=[b"ciphertext"],
        ),
        "greet": Frame(sender=ME, to=OTHER, headers=[seals.Greet(5, 0)]),
        "view_key": Frame(sender=ME, to=OTHER, headers=[seals.ViewKey((7, ME), bytes(range(32)))]),
        "key_wanted": Frame(sender=ME, to=OTHER, headers=[seals.KeyWanted((7, ME))]),
    }


def described(frame: Frame) -> dict[str, Any]:
    """What a frame says, as JSON holds it; ``bodies`` are told by their bytes."""
    fields = {name: getattr(frame, name) for name in Frame.__struct_fields__}
    bodies = fields["bodies"]
    fields["bodies"] = (bytes(bodies) if isinstance(bodies, msgspec.Raw) else msgspec.msgpack.encode(bodies)).hex()
    built: dict[str, Any] = json.loads(msgspec.json.encode(fields))
    return built


def record() -> Path:
    folder = FRAMES / f"{MAJOR}.{MINOR}"
    folder.mkdir(parents=True, exist_ok=True)
    told = {}
    for name, frame in samples().items():
        (folder / f"{name}.bin").write_bytes(codec().encode(frame))
        told[name] = described(frame)
    (folder / "frames.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    record()
