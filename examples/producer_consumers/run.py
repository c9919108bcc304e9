"""Figure 2 as processes: a router, a producer and three consumers on two hosts. Under load, consumer1 moves from one
host to the other, and the router is killed and started again; nothing is lost, nothing comes twice.

    python run.py [COUNT]

The hosts are network namespaces, which needs root and ``ip``; without them all processes are on this host.
"""

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pluribus import errors
from pluribus.bench.namespaces import pair

HERE = Path(__file__).resolve().parent


def main(count: int) -> dict[str, object]:
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(pair())
        except errors.Unavailable as error:
            print(f"on one host: {error}", file=sys.stderr)
            hosts = [("", "127.0.0.1"), ("", "127.0.0.1")]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running: list[subprocess.Popen[str]] = []
        stack.callback(lambda: [process.kill() for process in running])

        def start(host: tuple[str, str], *words: str) -> subprocess.Popen[str]:
            name, address = host
            entered = ["ip", "netns", "exec", name] if name else []
            url = f"PLURIBUS_URL=multicast://figure2?interface={address}"
            command = [*entered, "env", url, sys.executable, *words]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, cwd=HERE, stdin=pipe, stdout=pipe, text=True)
            running.append(process)
            return process

        def router(host: tuple[str, str]) -> subprocess.Popen[str]:
            words = ("-m", "pluribus", "slots", "up", "figure2.bus", "--stack", "best-effort")
            process = start(host, *words, "--store", str(folder / "map.db"))
            process.stdout.readline()
            return process

        first = router(hosts[0])
        consumers = {name: start(hosts[0], "consumer.py", name) for name in ("consumer2", "consumer3")}
        carry = str(folder / "carry")
        consumers["consumer1"] = start(hosts[0], "consumer.py", "consumer1", carry)
        for process in consumers.values():
            assert process.stdout.readline() == "enrolled\n"
        producer = start(hosts[0], "producer.py", str(count))
        got = [int(consumers["consumer1"].stdout.readline()) for _ in range(count // 5)]

        consumers["consumer1"].stdin.write("\n")  # it leaves
        rest, _ = consumers["consumer1"].communicate(timeout=30)
        got += map(int, rest.split())
        moved = consumers["consumer1"] = start(hosts[1], "consumer.py", "consumer1", carry)
        moved.stdout.readline()
        here = len(got)

        first.kill()  # the router too, without a word
        first.wait()
        router(hosts[0])

        said, _ = producer.communicate(timeout=120)
        for process in consumers.values():
            process.stdin.write("\n")
        read = {name: process.communicate(timeout=30)[0].split() for name, process in consumers.items()}
        got += map(int, read["consumer1"])
        red, green = list(range(count)), list(range(0, count, 10))
        return {
            "producer": said.strip(),
            "consumer1": len(got),
            "before_the_move": here,
            "whole": sorted(got) == red,
            "consumer3_whole": sorted(map(int, read["consumer3"])) == red,
            "consumer2_whole": sorted(map(int, read["consumer2"])) == green,
        }


if __name__ == "__main__":
    found = main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
    print(json.dumps(found))
    sys.exit(not (found["whole"] and found["consumer2_whole"] and found["consumer3_whole"]))
