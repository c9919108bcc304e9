"""Groups with a key of their own: who does not have it is refused, with the reason on both sides, and reads nothing."""

import asyncio
from itertools import count

import pytest

import pluribus
from pluribus import events
from pluribus.core.errors import BadInput, Damaged, GroupMismatch
from pluribus.core.frame import Frame
from pluribus.core.secret import Secret
from pluribus.group.seal import Seal, SealedState
from pluribus.runtime.bus import BEST_EFFORT, VIEWS

KEY, OTHER = "k" * 32, "o" * 32


@pytest.mark.parametrize("promises", [{}, {"own": False}, {"order": "causal"}, {"order": "semantic"}, {"safe": True}])
def test_members_with_the_key_talk_and_others_on_the_bus_see_nothing_of_it(promises: dict):
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            one, other, stranger = world.buses
            groups = [await bus.group("board", key=KEY, **promises) for bus in (one, other)]
            await groups[0].wait_for(2)
            seen: list[bytes] = []
            carry = world.network.carry
            world.network.carry = lambda source, target, data: (seen.append(bytes(data)), carry(source, target, data))
            await groups[0].send("the price is 42 million")
            await groups[0].send({"price": "43 million"}, to=other.me)
            bodies = [(await groups[1].receive(timeout=5)).body for _ in range(2)]
            assert sorted(map(str, bodies)) == ["the price is 42 million", "{'price': '43 million'}"]
            answers = asyncio.create_task(groups[0].ask("agreed?", replies=1, to=other.me))
            asked = await groups[1].receive(timeout=5)
            await asked.reply("yes, agreed for 44 million")
            assert [answer.body for answer in await answers] == ["yes, agreed for 44 million"]
            await groups[0].send(b"9 million " * 50_000)
            assert len((await groups[1].receive(timeout=5)).body) == 500_000
            assert seen and not any(b"million" in datagram for datagram in seen)
            assert stranger.stats()["groups"]["channels"] == 0

    pluribus.sim.run(main())


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [({"key": OTHER}, "another key"), ({}, "has a key, which was not given"), ({"order": "total"}, "'total'")],
)
def test_who_has_not_the_key_is_refused_and_both_sides_are_told_why(asked: dict, sentence: str):
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=2, stack=VIEWS) as world:
            everybody = await asyncio.gather(*[bus.group("all") for bus in world.buses])
            await everybody[0].wait_for(2)
            eldest, other = sorted(world.buses, key=lambda bus: bus._dispatch.view.members.index(bus.me))
            told: list[object] = []
            eldest.on_event(told.append)
            group = await eldest.group("board", key=KEY)
            with pytest.raises(GroupMismatch, match=sentence):
                await other.group("board", **asked)
            refused = [event for event in told if isinstance(event, events.JoinRefused)]
            assert len(refused) == 1
            assert refused[0].member == other.me and refused[0].group == "board" and sentence in refused[0].reason
            assert KEY not in str(refused[0]) and "key:" not in refused[0].reason
            assert len(group.view) == 1
            joined = await other.group("board", key=KEY)
            await joined.wait_for(2)

    pluribus.sim.run(main())


def test_a_joiner_is_given_the_state_under_the_key():
    class Board:
        def __init__(self, lines: list[str]) -> None:
            self.lines = lines

        def snapshot(self) -> bytes:
            return "\n".join(self.lines).encode()

        def restore(self, state: bytes) -> None:
            self.lines = state.decode().split("\n")

    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=3, stack=VIEWS) as world:
            one, other = Board(["42 million"]), Board([])
            group = await world.buses[0].group("board", key=KEY, order="total", state=one)
            reading = asyncio.create_task(group.receive())
            await world.buses[1].group("board", key=KEY, order="total", state=other)
            assert other.lines == ["42 million"]
            reading.cancel()
            sealed = SealedState(one, Seal(Secret(KEY), "b", "board", 7, count()))
            assert b"million" not in sealed.snapshot()
            with pytest.raises(Damaged):
                SealedState(one, Seal(Secret(OTHER), "b", "board", 8, count())).restore(sealed.snapshot())

    pluribus.sim.run(main())


def test_a_sealed_frame_cannot_be_passed_off_as_another():
    def frame(**other: int) -> Frame:
        fields = {"sender": 7, "to": 0, "group": 5, "first": 3, "count": 1, **other}
        return Frame(size=1, bodies=[b"x"], **fields)

    seal = Seal(Secret(KEY), "bus", "board", 7, count())
    sealed = seal.sealed(frame())
    assert seal.opened(sealed) is not None
    for field, value in {"sender": 8, "to": 9, "group": 6, "first": 4, "count": 2}.items():
        moved = sealed.copy()
        setattr(moved, field, value)
        assert seal.opened(moved) is None
    assert seal.opened(frame()) is None, "in clear"
    assert Seal(Secret(OTHER), "bus", "board", 7, count()).opened(sealed) is None
    assert Seal(Secret(KEY), "bus", "other board", 7, count()).opened(sealed) is None
    assert seal.refused == 6


def test_two_frames_alike_are_sealed_differently():
    seal = Seal(Secret(KEY), "bus", "board", 7, count())
    frames = [Frame(sender=7, group=5, first=3, count=1, size=1, bodies=[b"x"]) for _ in range(2)]
    assert bytes(seal.sealed(frames[0]).bodies) != bytes(seal.sealed(frames[1]).bodies)


def test_what_does_not_fit_is_refused():
    async def main() -> None:
        async with pluribus.sim.world(members=1, seed=4, stack=VIEWS) as world:
            (bus,) = world.buses
            with pytest.raises(BadInput, match="exclude each other"):
                await bus.group("board", key=KEY, open=True)
            with pytest.raises(BadInput, match="the group key has 5 bytes"):
                await bus.group("board", key="short")
            await bus.group("board", key=KEY)
            assert (await bus.group("board")).name == "board"
            with pytest.raises(GroupMismatch, match="is open with"):
                await bus.group("board", key=OTHER)
        async with pluribus.sim.world(members=1, seed=4, stack=BEST_EFFORT) as world:
            with pytest.raises(BadInput, match="views"):
                await world.buses[0].group("board", key=KEY)

    pluribus.sim.run(main())
