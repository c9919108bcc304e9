"""Handles: calls of all objects with an interface, of a group's, of one; who may call through which."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import AnswersLate, BadInput, NoObject, Refused, RemoteError
from pluribus.objects import export
from tests.harness import eventually, on_a_loop
from tests.runtime.styles.objects.things import Reading, Thermometer, buses


class Lamp:
    """The interface."""

    async def shine(self, brightness: float, color: str = "white") -> str:
        raise NotImplementedError

    async def state(self) -> Reading:
        raise NotImplementedError


class RealLamp(Lamp):
    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list = []
        self.fails = False

    async def shine(self, brightness: float, color: str = "white") -> str:
        self.calls.append((brightness, color))
        if self.fails:
            raise LookupError("burnt out")
        return self.name

    async def state(self) -> Reading:
        return Reading(2700.0, self.name)

    async def secret(self) -> str:
        return "not in the interface"


@on_a_loop
async def test_omni_handles_call_every_object_with_the_interface():
    async with buses(3) as (a, b, c):
        lamps = [RealLamp(name) for name in "xyz"]
        for bus, lamp in zip((a, b, b), lamps, strict=True):
            await bus.directory.add(lamp, exports=[Lamp])
        await c.directory.add(Thermometer())
        assert await c.omni(Lamp).shine(0.5) is None
        await eventually(lambda: all(lamp.calls == [(0.5, "white")] for lamp in lamps))
        everybody = c.omni(Lamp, results="all")
        assert sorted(await everybody.shine(1, color="red")) == ["x", "y", "z"]
        assert {reading.place for reading in await a.omni(Lamp, results="all").state()} == {"x", "y", "z"}
        assert await c.omni(Lamp, results="first").shine(0.1) in "xyz"
        lamps[0].fails = True
        found = await b.omni(Lamp, results="all").shine(0.2)
        assert sorted(value for value in found if isinstance(value, str)) == ["y", "z"]
        (failed,) = [value for value in found if isinstance(value, Exception)]
        assert "burnt out" in str(failed)
        for lamp in lamps:
            lamp.fails = True
        with pytest.raises(RemoteError, match="LookupError: burnt out"):
            await c.omni(Lamp, results="first").shine(0.2)


@on_a_loop
async def test_group_and_uni_handles():
    async with buses(3) as (a, b, c):
        lamps = [RealLamp(name) for name in "xyz"]
        shadows = [
            await bus.directory.add(lamp, *aliases, exports=[Lamp])
            for bus, lamp, aliases in zip((a, b, b), lamps, (["floor-3"], ["floor-3"], ["floor-4"]), strict=True)
        ]
        assert sorted(await c.group_handle(Lamp, "floor-3", results="all").shine(0.5)) == ["x", "y"]
        assert await c.group_handle(Lamp, "floor-4", results="first").shine(0.5) == "z"
        assert await c.uni(Lamp, shadows[1]).shine(0.9, "red") == "y" and lamps[1].calls[-1] == (0.9, "red")
        assert await a.uni(Lamp, shadows[0]).shine(0.9) == "x"
        assert await c.group_handle(Lamp, "floor-9", results="all").shine(0.5) == []
        with pytest.raises(NoObject, match="floor-9"):
            await c.group_handle(Lamp, "floor-9", results="first").shine(0.5)
        await b.directory.remove(shadows[1])
        with pytest.raises(NoObject):
            await c.uni(Lamp, shadows[1]).shine(0.9)


@on_a_loop
async def test_the_interface_is_kept_before_anything_is_sent_and_checked_where_it_arrives():
    async with buses() as (a, b):
        lamp = RealLamp("x")
        shadow = await a.directory.add(lamp, exports=[Lamp])
        handle = b.uni(Lamp, shadow)
        with pytest.raises(AttributeError, match="Lamp has no method 'secret'"):
            _ = handle.secret
        with pytest.raises(AttributeError):
            _ = handle._hidden
        with pytest.raises(TypeError):
            await handle.shine()
        with pytest.raises(TypeError):
            await handle.shine(1, size=2)
        for remote in (handle, a.uni(Lamp, shadow)):
            with pytest.raises((RemoteError, BadInput), match="the argument 'brightness' does not fit"):
                await remote.shine("bright")
        assert not lamp.calls
        with pytest.raises(BadInput, match="results="):
            b.omni(Lamp, results="some")
        with pytest.raises(BadInput, match="has no method 'shine'"):
            await b.directory.add(object.__new__(Thermometer), exports=[Lamp])


@on_a_loop
async def test_exports_are_access_control():
    async with buses(3) as (a, b, c):
        closed = RealLamp("closed")
        shadow = await a.directory.add(
            closed, "floor-3", exports=[export(Lamp, omni=False, groups=["floor-3"], uni=False)]
        )
        only = RealLamp("only m1")
        theirs = await a.directory.add(only, exports=[export(Lamp, callers=["m1"])])
        assert await b.omni(Lamp, results="all").shine(1) == ["only m1"]
        assert await c.omni(Lamp, results="all").shine(1) == []
        with pytest.raises((Refused, RemoteError), match="may not be called"):
            await c.omni(Lamp, results="first").shine(1)
        assert await c.group_handle(Lamp, "floor-3", results="all").shine(1) == ["closed"]
        with pytest.raises(Refused, match="may not be called"):
            await c.uni(Lamp, shadow).shine(1)
        with pytest.raises(Refused):
            await a.uni(Lamp, shadow).shine(1)
        assert await b.uni(Lamp, theirs).shine(1) == "only m1"
        with pytest.raises(Refused):
            await c.uni(Lamp, theirs).shine(1)
        assert only.calls == [(1, "white")] * 2


@on_a_loop
async def test_receivers_filter_before_they_decode():
    async with buses() as (a, b):
        await b.directory.add(Thermometer(), "thermometer")
        post = b._post
        before = post.stats()
        await a.omni(Lamp).shine(0.5)
        await a.communicator.broadcast("lamps", "(tell :content dark)")
        await eventually(lambda: post.stats()["filtered"] == before["filtered"] + 2)
        assert post.stats()["decoded"] == before["decoded"], "nobody looked into them"


@on_a_loop
async def test_calls_of_one_object():
    async with buses() as (a, b):
        await a.directory.add(Thermometer("roof", 20.0), "roof")
        shadow = await b.directory.find("roof")
        assert await shadow.call("read") == 20.0 and await shadow.call("read", offset=1.5) == 21.5
        with pytest.raises(RemoteError, match="LookupError: nothing here"):
            await shadow.call("fail")
        with pytest.raises(RemoteError, match="no method 'told' is exposed"):
            await shadow.call("told", 1)
        with pytest.raises(BadInput, match="private"):
            await shadow.call("_hidden")
        with pytest.raises(BadInput, match="queued=True"):
            await shadow.call("read", key="x")

        class Stuck:
            @pluribus.exposed
            async def wait(self) -> None:
                await asyncio.Event().wait()

        stuck = await a.directory.add(Stuck(), "stuck")
        for target in (stuck, b.directory.shadow("stuck")):
            with pytest.raises(AnswersLate):
                await target.call("wait", timeout=0.05)
        assert await b.directory.shadow("roof").call("read") == 20.0
