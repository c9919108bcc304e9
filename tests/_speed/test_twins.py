"""Everything in C has a twin in Python and a line in the stub; what does not fit is not used, and the log says why."""

import ast
import subprocess
import sys

import msgspec
import pytest

from pluribus._speed import arrivals, ends, loading, packing, passing, reading, wires
from tests._speed.both_ends import compiled
from tests.features import ROOT

pytestmark = pytest.mark.skipif(compiled is None, reason="there is nothing compiled")

TWINS = (ends, passing, reading, packing, arrivals, wires)
LAYERS = {"Straight", "FIELDS"}
"""Their twin is the stack's layers: tests/_speed/test_straight.py plays worlds with it and without."""


def offered() -> set[str]:
    return {name for name in vars(compiled) if not name.startswith("__")}


def test_every_name_in_c_has_a_twin_in_python():
    twins = {name for module in TWINS for name in vars(module)}
    assert offered() - LAYERS <= twins
    own = [
        name
        for module in TWINS
        for name, it in vars(module).items()
        if getattr(it, "__module__", "") == module.__name__
    ]
    assert {"flatten", "Reading", "Runner", "Wire", "Line"} <= set(own), "else this shows nothing"


def test_every_name_in_c_is_in_the_stub_and_in_the_readme():
    room = ROOT / "src" / "pluribus" / "_speed"
    stub = ast.parse((room / "_quick.pyi").read_text(encoding="utf-8"))
    said = {
        node.asname or node.name if isinstance(node, ast.alias) else node.name
        for node in ast.walk(stub)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.alias)
    }
    said |= {
        node.target.id
        for node in ast.walk(stub)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert offered() <= said
    readme = (room / "README.md").read_text(encoding="utf-8")
    assert [name for name in offered() if f"`{name}`" not in readme] == []
    assert [
        path.name
        for path in (room / "c").iterdir()
        if path.suffix == ".h" and path.stem not in readme and not path.stem.startswith("straight_")
    ] == []


def test_another_layout_is_refused(monkeypatch: pytest.MonkeyPatch):
    class Message(msgspec.Struct):
        body: bytes
        more: int

    loading.check(compiled)
    with monkeypatch.context() as changes:
        changes.setattr(loading, "Message", Message)
        with pytest.raises(loading.Misfit, match="Message has the fields body, more"):
            loading.check(compiled)
    with monkeypatch.context() as changes:
        changes.setattr(loading, "FRAME_FIELDS", {"sender", "colour"})
        with pytest.raises(loading.Misfit, match="no field colour"):
            loading.check(compiled)

    class Reads(compiled.Reading):
        def take_lone(self):
            return None

        def take_plain(self):
            return None

    class Other:
        Reading = Reads

    with pytest.raises(loading.Misfit, match="it reads"):
        loading.check(Other)  # type: ignore[arg-type]


def test_what_does_not_fit_is_not_used_and_the_log_says_why(monkeypatch: pytest.MonkeyPatch, caplog):
    monkeypatch.setattr(loading, "MESSAGE_FIELDS", ("body",))
    module, reason = loading.loaded()
    assert module is None
    assert "Message has the fields body, sender, id, parent, orphan" in reason
    assert reason in caplog.text


STRAIGHT = """
import asyncio, logging
from collections import UserDict
logging.basicConfig(level="WARNING", format="%(message)s")
import pluribus
from pluribus.layers.reliable import outgoing
made = outgoing.Outgoing.__init__
def otherwise(self, first=0):
    made(self, first)
    self.acked = UserDict()
outgoing.Outgoing.__init__ = otherwise
async def main():
    async with pluribus.connect("inproc://a") as a, pluribus.connect("inproc://a") as b:
        sends, reads = await a.group("g"), await b.group("g")
        await sends.wait_for(2)
        await sends.send(b"the long way")
        assert (await reads.receive(20)).body == b"the long way"
asyncio.run(main())
"""


def test_a_stack_whose_fields_are_of_other_types_goes_the_long_way():
    done = subprocess.run([sys.executable, "-c", STRAIGHT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Outgoing.acked is to be a dict, not UserDict" in done.stderr
