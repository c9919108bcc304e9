"""One frame of every sort that a best-effort bus sends, and the way to record them.

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

from pluribus.core.frame import Frame, Parents
from pluribus.group.dispatch import Dispatch
from pluribus.layers.presence import Bye, Hello, Presence, Refusal
from pluribus.layers.window import Ack, Granted, Probe, Sent, Window
from pluribus.wire.bodies import BYTES, DATA, TEXT, encode_body, join_bodies, register
from pluribus.wire.codec import MAJOR, MINOR, Codec

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
}


def codec() -> Codec:
    """One that knows the headers of the recorded layers."""
    return Codec(BUS, (*Presence.headers, *Window.headers, *Dispatch.headers))


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
