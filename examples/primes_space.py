"""How many primes there are below a number, by a master and workers that know only a tuple space.

    python examples/primes_space.py --below 200000 --workers 3
    python examples/primes_space.py --kind partitioned

With ``--kind views`` or ``partitioned`` there is no server: master and workers are the space, and share it out anew
when one of them comes or dies; of a partitioned space there are two copies. Workers are processes. One is killed while
it works and another is added, and the count is right all the same: a worker takes a task by replacing it with a note
that it has it, in one step; tasks whose worker is gone are put back by the master, and a result that comes twice is
counted once.
"""

import argparse
import asyncio
import os
import signal
import sys

import pluribus

SPACE = "primes"
STEP = 5_000


def primes_between(start: int, stop: int) -> int:
    """How many primes are in a range, the slow way."""
    return sum(
        1
        for number in range(max(start, 2), stop)
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1))
    )


async def opened(bus: pluribus.Bus, kind: str) -> pluribus.Space:
    return await bus.space(SPACE, kind=kind, copies=2 if kind == "partitioned" else 1, timeout=60)


async def work(url: str, kind: str) -> None:
    """A worker: take a task, do it, write the result; a pill ends it."""
    me = os.getpid()
    async with pluribus.connect(url, name=f"worker {me}") as bus:
        space = await opened(bus, kind)
        while True:
            start = (await space.replace(("task", int), ("taken", me)))[1]
            if start < 0:
                await space.take(("taken", me))
                return
            await space.replace(("taken", me), ("doing", me, start))
            count = await asyncio.to_thread(primes_between, start, start + STEP)
            await space.replace(("doing", me, start), ("result", start, count))


async def started(url: str, kind: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, __file__, "--worker", url, "--kind", kind)


async def lead(url: str, kind: str, below: int, workers: int, kills: bool) -> int:
    async with pluribus.connect(url, name="master") as bus:
        space = await opened(bus, kind)
        tasks = list(range(0, below, STEP))
        await space.write_many([("task", start) for start in tasks])
        processes = [await started(url, kind) for _ in range(workers)]
        killed: list[int] = []
        counts: dict[int, int] = {}
        while len(counts) < len(tasks):
            found = await space.take_if_exists(("result", int, int))
            if found is not None:
                counts[found[1]] = found[2]
                if kills and not killed and len(counts) >= len(tasks) // 4:
                    victim = processes.pop(0)
                    victim.send_signal(signal.SIGKILL)
                    await victim.wait()
                    killed.append(victim.pid)
                    processes.append(await started(url, kind))
                    print(f"worker {victim.pid} was killed, another was started", flush=True)
                continue
            for pid in killed:
                await put_back(space, pid, tasks, counts)
            await asyncio.sleep(0.01)
        await space.write_many([("task", -1)] * len(processes))
        for process in processes:
            await process.wait()
        return sum(counts.values())


async def put_back(space: pluribus.Space, pid: int, tasks: list[int], counts: dict[int, int]) -> None:
    """What a worker that is gone had taken. If it died between its two notes nobody knows which task it had: those that
    are nowhere are put back."""
    doing = await space.take_if_exists(("doing", pid, int))
    if doing is not None:
        await space.write(("task", doing[2]))
    if await space.take_if_exists(("taken", pid)) is not None:
        waiting = {start async for _, start in space.read_all(("task", int))}
        busy = {start async for _, _, start in space.read_all(("doing", int, int))}
        results = {start async for _, start, _ in space.read_all(("result", int, int))}
        for start in set(tasks) - waiting - busy - results - set(counts):
            await space.write(("task", start))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--below", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kind", choices=("replicated", "views", "partitioned"), default="replicated")
    parser.add_argument("--url", default=f"multicast://primes-{os.getpid()}")
    parser.add_argument("--calm", action="store_true", help="kill nobody")
    parser.add_argument("--worker", metavar="URL", help="be a worker")
    given = parser.parse_args()
    if given.worker:
        pluribus.run(work(given.worker, given.kind))
        return
    below = given.below - given.below % STEP
    count = pluribus.run(lead(given.url, given.kind, below, given.workers, not given.calm))
    print(f"There are {count} primes below {below}.")


if __name__ == "__main__":
    main()
