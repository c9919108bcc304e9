"""User coroutines under virtual time: waiting is free, the outside is closed, and the loop comes back as it was."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

import pluribus
from pluribus import sim
from pluribus.core.errors import SimulationError
from pluribus.sim.machinery import loop
from tests.sim.inside import in_a_world


@in_a_world(members=2)
async def test_an_hour_of_sleep_takes_no_time(world):
    began = time.monotonic()
    await asyncio.sleep(3_600)
    assert world.now == 3_600
    assert asyncio.get_running_loop().time() == world.now
    assert time.monotonic() - began < 30  # not a measure of speed: an hour would take an hour


@in_a_world(members=0)
async def test_timeouts_and_timers_keep_their_order(world):
    ran = []

    async def sleeper(seconds):
        await asyncio.sleep(seconds)
        ran.append((world.now, seconds))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.5):
            await asyncio.gather(sleeper(3), sleeper(1), sleeper(2))
    assert ran == [(1, 1), (2, 2)]
    assert world.now == 2.5
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 86_400 * 30)
    assert world.now == pytest.approx(2.5 + 86_400 * 30)


async def start_thread():
    threading.Thread(target=lambda: None).start()


async def start_program():
    subprocess.run([sys.executable, "-c", ""], check=True)  # noqa: ASYNC221 - it must not get that far


async def open_socket():
    with socket.socket():
        pass


async def receive_on_a_socket(sock):
    await asyncio.get_running_loop().sock_recv(sock, 1)


OUTSIDE = {
    "to_thread": lambda: asyncio.to_thread(int),
    "a thread": start_thread,
    "a socket": open_socket,
    "a process": start_program,
    "os.system": lambda: asyncio.sleep(0, os.system("true")),
    "open_connection": lambda: asyncio.open_connection("127.0.0.1", 9),
    "start_server": lambda: asyncio.start_server(lambda r, w: None, "127.0.0.1", 0),
    "create_subprocess_exec": lambda: asyncio.create_subprocess_exec("true"),
    "getaddrinfo": lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1),
    "connect": lambda: pluribus.connect("udp://127.0.0.1:0/x")._connect(),
}


@pytest.mark.parametrize("way", OUTSIDE)
def test_ways_out_of_the_world_are_refused_in_one_sentence(way):
    async def main():
        async with sim.world(members=1):
            with pytest.raises(SimulationError, match="reaches outside the world") as caught:
                await OUTSIDE[way]()
            assert "\n" not in str(caught.value)

    sim.run(main())


def test_a_socket_from_before_the_world_is_refused_too():
    async def main(ours):
        async with sim.world(members=0):
            with pytest.raises(SimulationError, match="sock_recv reaches outside"):
                await receive_on_a_socket(ours)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        sim.run(main(ours))


def test_a_thread_from_before_the_world_cannot_call_in():
    async def main():
        loop, refused = asyncio.get_running_loop(), []
        go, done = threading.Event(), threading.Event()

        def call_in():
            go.wait()
            try:
                loop.call_soon_threadsafe(lambda: None)
            except SimulationError as error:
                refused.append(str(error))
            done.set()

        thread = threading.Thread(target=call_in)
        thread.start()
        async with sim.world(members=0):
            go.set()
            done.wait()
        thread.join()
        assert refused and "from a thread" in refused[0]

    sim.run(main())


def test_other_threads_are_left_alone_while_a_world_is_open():
    async def main():
        go, made = threading.Event(), []

        def elsewhere():
            go.wait()
            with socket.socket() as sock:
                made.append(sock.fileno())

        thread = threading.Thread(target=elsewhere)
        thread.start()
        async with sim.world(members=0):
            go.set()
            thread.join()
        assert made

    sim.run(main())


def test_the_loop_is_itself_again_after_the_world():
    async def main():
        loop = asyncio.get_running_loop()
        before = set(vars(loop)), loop._selector.select, loop.time()
        async with sim.world(members=1):
            await asyncio.sleep(10)
        assert (set(vars(loop)), loop._selector.select) == before[:2]
        assert loop.time() - before[2] < 10  # real time again
        assert await asyncio.to_thread(lambda: 5) == 5
        with socket.socket():
            pass
        async with sim.world(members=1) as world:  # and another world may be opened
            assert world.now == 0

    sim.run(main())


def test_the_loop_is_itself_again_after_an_error_inside():
    async def main():
        with pytest.raises(KeyError):
            async with sim.world(members=1):
                raise KeyError
        assert await asyncio.to_thread(lambda: 5) == 5

    sim.run(main())


def test_two_worlds_at_once_are_refused():
    async def main():
        async with sim.world(members=1) as world:
            with pytest.raises(SimulationError, match="a world is open on this loop already"):
                async with sim.world(members=1):
                    pass
            await asyncio.sleep(1)
            assert world.now == 1  # the first one is unharmed

    sim.run(main())


def test_uvloop_is_refused_with_the_remedy():
    uvloop = pytest.importorskip("uvloop")

    async def main():
        async with sim.world(members=1):
            pass

    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(SimulationError, match=r"needs the standard asyncio loop, this is uvloop.*pluribus\.sim\.run"),
    ):
        runner.run(main())


def test_asyncio_run_will_do():
    async def main():
        async with sim.world(members=2) as world:
            await asyncio.sleep(5)
            return len(world.buses[0].members)

    assert asyncio.run(main()) == 2


async def wait_for_ever():
    await asyncio.Event().wait()


def test_a_world_in_which_nothing_can_happen_names_who_waits():
    async def main():
        async with sim.world(members=0):
            task = asyncio.create_task(wait_for_ever(), name="the forgotten one")
            await task

    with pytest.raises(SimulationError, match=r"nothing can happen.*the forgotten one \(wait_for_ever, line \d+"):
        sim.run(main())


def test_members_that_only_greet_each_other_do_not_hide_a_deadlock():
    async def main():
        async with sim.world(members=2) as world:
            group = await world.buses[0].group("silent")
            await group.receive()

    with pytest.raises(SimulationError, match=r"no task could go on for 7,200 s of virtual time.*\(main, line"):
        sim.run(main())


def test_leaving_twice_does_no_harm():
    async def main():
        world = sim.world(members=1)
        async with world:
            pass
        await world.__aexit__(None, None, None)
        assert asyncio.get_running_loop().time() > 0

    sim.run(main())


async def look_again_and_again():
    while True:  # noqa: ASYNC110 - that is the mistake
        await asyncio.sleep(0)


def test_a_task_that_never_waits_is_named_and_does_not_stop_time_for_ever(monkeypatch):
    monkeypatch.setattr(loop, "SIM_TURNS_MAX", 1_000)

    async def main():
        async with sim.world(members=1):
            for _ in range(5):
                for _ in range(900):
                    await asyncio.sleep(0)  # not without end: time goes on in between
                await asyncio.sleep(1)
            await asyncio.create_task(look_again_and_again(), name="the busy one")

    with pytest.raises(SimulationError, match=r"time stands still.*the busy one \(look_again_and_again, line \d+"):
        sim.run(main())
