"""Frames of every release are kept, and today's code reads them. ``samples.py`` says how to record new ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from pluribus.wire.bodies import decode_bodies
from pluribus.wire.codec import MAJOR, MINOR
from tests.wire import samples

RELEASES = sorted(folder for folder in samples.FRAMES.iterdir() if int(folder.name.split(".")[0]) == MAJOR)
RECORDED = [path for folder in RELEASES for path in sorted(folder.glob("*.bin"))]


def begins_with(found: Any, recorded: Any) -> bool:
    """Whether a value is what was recorded; arrays may have grown at their end since."""
    if isinstance(found, list) and isinstance(recorded, list):
        return len(found) >= len(recorded) and all(map(begins_with, found, recorded))
    return bool(found == recorded)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_frame_is_read_as_it_was_meant(path: Path):
    meant = json.loads((path.parent / "frames.json").read_text(encoding="utf-8"))[path.stem]
    frame = samples.codec().decode(path.read_bytes())
    found = samples.described(frame)
    assert not {key: (found[key], value) for key, value in meant.items() if not begins_with(found[key], value)}


@pytest.mark.parametrize("name", samples.BODIES)
@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_recorded_bodies_are_the_objects_they_were(folder: Path, name: str):
    kind, bodies = samples.BODIES[name]
    frame = samples.codec().decode((folder / f"data_{name}.bin").read_bytes())
    assert frame.kind == kind
    assert decode_bodies(frame.kind, frame.bodies, frame.count) == bodies


def test_what_is_sent_today_is_what_was_recorded_for_this_version():
    folder = samples.FRAMES / f"{MAJOR}.{MINOR}"
    assert {path.stem for path in folder.glob("*.bin")} == set(samples.samples()), "python -m tests.wire.samples"
    changed = [
        name
        for name, frame in samples.samples().items()
        if samples.codec().encode(frame) != (folder / f"{name}.bin").read_bytes()
    ]
    assert not changed, f"{changed} changed without a new version: raise MINOR, then python -m tests.wire.samples"


def test_every_release_kept_its_frames():
    assert RELEASES
    for folder in RELEASES:
        told = json.loads((folder / "frames.json").read_text(encoding="utf-8"))
        assert {path.stem for path in folder.glob("*.bin")} == set(told), folder
