"""The fire alarm that people answer runs, and every answer stands under its alarm."""

import runpy
from pathlib import Path

from tests.harness import on_a_loop

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "alarm_conversation.py"


@on_a_loop
async def test_the_alarm_is_answered_in_threads():
    example = runpy.run_path(str(EXAMPLE))
    assert await example["main"]() == [
        "warden 1: FIRE on floor 3, kitchen",
        "  warden 3: on my way with the extinguisher",
        "warden 1: FLOOD in the cellar",
        "  warden 2: I close the valve",
    ]
