"""The volatile log on groups of a simulated bus."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import Closed, Overflow, TooLarge, Uncertain
from pluribus.group import safelog
from pluribus.group.safelog import SafeLog
from pluribus.runtime.bus import VIEWS


class Reader:
    """The owner of a log, which writes down what it is handed."""

    def __init__(self, bus: pluribus.Bus, generation: int) -> None:
        self.log = SafeLog("log", bus._dispatch, generation)
        self.commands: list[bytes] = []
        self.batches: list[tuple[int, int]] = []
        self.done: list[object] = []
        self.log.on_commit = self.commit
        self.log.on_snapshot = lambda: b",".join(self.commands)
        self.log.on_restore = self.restore
        self.log.start()

    def commit(self, first: int, commands: list[bytes]) -> None:
        assert first == len(self.commands)
        self.batches.append((first, len(commands)))
        self.commands += commands

    def restore(self, index: int, state: bytes) -> None:
        self.commands = state.split(b",") if state else []
        assert len(self.commands) == index

    def completed(self, index: int, error: Exception | None) -> None:
        self.done.append(index if error is None else error)

    def submit(self, *commands: bytes) -> None:
        if len(commands) == 1:
            self.log.submit(commands[0], self.completed)
        else:
            self.log.submit_many(commands, self.completed)


async def until(condition) -> None:
    for _ in range(3_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


async def readers(world: pluribus.sim.World) -> list[Reader]:
    found = [Reader(bus, 100 + at) for at, bus in enumerate(world.buses)]
    await until(lambda: all(reader.log.ready and len(reader.log._channel.view) == len(found) for reader in found))
    return found


def test_members_are_handed_the_same_commands_and_callers_their_index():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            found = await readers(world)
            for number in range(50):
                found[number % 3].submit(b"%d" % number)
            found[0].submit(b"a", b"b", b"c")
            await until(lambda: all(len(reader.commands) == 53 for reader in found))
            assert len({tuple(reader.commands) for reader in found}) == 1
            assert len({reader.log.generation for reader in found}) == 1
            for reader, own in zip(found, ("0369", "147", "258"), strict=True):
                assert [reader.commands[index][-1:].decode() in "0123456789abc" for index in reader.done]
                assert reader.done == sorted(reader.done) and own
            at = found[0].done[-1]
            assert found[0].commands[at : at + 3] == [b"a", b"b", b"c"]
            for reader in found:
                reader.log.validate()

    pluribus.sim.run(main())


def test_a_barrier_sees_what_was_committed_before_it_and_has_no_place():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=2, stack=VIEWS) as world:
            one, other = await readers(world)
            one.submit(b"x")
            await until(lambda: one.done)
            seen: list[int] = []
            for _ in range(3):
                other.log.barrier(lambda index, error: seen.append((index, len(other.commands))))
            await until(lambda: len(seen) == 3)
            assert seen == [(1, 1)] * 3
            assert one.log.applied == other.log.applied == 1

    pluribus.sim.run(main())


def test_any_number_of_barriers_waits_for_a_primary_together():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=2, stack=VIEWS) as world:
            one, *_ = await readers(world)
            world.partition([0], [1, 2])
            await until(lambda: one.log.paused)
            for _ in range(2_000):
                one.log.barrier(one.completed)
            world.heal()
            await until(lambda: len(one.done) == 2_000)
            assert one.done == [0] * 2_000
            one.log.validate()

    pluribus.sim.run(main())


def test_a_command_larger_than_a_frame_goes_in_pieces():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=3, stack=VIEWS) as world:
            found = await readers(world)
            large = bytes(5_000_000)
            found[0].submit(large)
            for number in range(20):
                found[0].submit(b"%d" % number)
                found[1].submit(b"%d" % number)
            await until(lambda: all(len(reader.commands) == 41 for reader in found))
            assert all(large in reader.commands for reader in found)
            assert len(found[0].done) == 21
            found[0].log.validate()

    pluribus.sim.run(main())


@pytest.mark.parametrize(("members", "size"), [(1, 3_000_000), (3, 3_000_000), (3, 100_000)])
def test_large_commands_may_be_submitted_while_the_stack_is_at_work(members, size):
    async def main() -> None:
        async with pluribus.sim.world(members=members, seed=3, stack=VIEWS) as world:
            found = await readers(world)
            large = [b"%d" % number * size for number in range(4)]

            def submit() -> None:
                for command in large:
                    found[0].submit(command)
                    found[0].submit(b"small")

            world.buses[0]._dispatch.stimulus(submit)
            await until(lambda: len(found[0].done) == 8)
            await until(lambda: all(len(reader.commands) == 8 for reader in found))
            assert found[0].commands[::2] == large and found[0].done == list(range(8))
            found[0].log.validate()

    pluribus.sim.run(main())


def test_what_was_sent_before_being_cut_off_is_uncertain_and_what_waits_is_kept():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=4, stack=VIEWS) as world:
            found = await readers(world)
            world.partition([0], [1, 2])
            found[0].submit(b"lost?")
            await until(lambda: found[0].done)
            assert isinstance(found[0].done[0], Uncertain)
            assert found[0].log.paused
            found[0].submit(b"later")
            found[0].submit(b"never")
            assert not found[0].log.withdraw(lambda index, error: None)
            assert found[0].log.withdraw(found[0].completed)
            world.heal()
            await until(lambda: all(found[0].done[1:] and reader.commands for reader in found))
            assert all(reader.commands == [b"never"] for reader in found), "the first of them was taken back"

    pluribus.sim.run(main())


def test_a_log_is_bounded(monkeypatch):
    monkeypatch.setattr(safelog, "COMMANDS_MAX", 3)
    monkeypatch.setattr(safelog, "BODY_BYTES_MAX", 1_000)

    async def main() -> None:
        async with pluribus.sim.world(members=1, seed=5, stack=VIEWS) as world:
            reader = Reader(world.buses[0], 1)
            with pytest.raises(TooLarge, match="1,001 bytes"):
                reader.submit(bytes(1_001))
            for _ in range(3):
                reader.submit(b"x")
            with pytest.raises(Overflow, match="3 commands"):
                reader.submit(b"x")
            await until(lambda: len(reader.done) == 3)
            reader.submit(b"x")
            reader.log.close()
            assert isinstance(reader.done[-1], Uncertain)
            with pytest.raises(Closed):
                reader.submit(b"x")

    pluribus.sim.run(main())
