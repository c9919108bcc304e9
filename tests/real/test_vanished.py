"""A client and its member are cut apart, and neither end of the connection is told: both notice."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.features import ROOT
from tests.real.cluster import Sites, eventually, sites

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Networks are cut in two on Linux."),
    pytest.mark.xdist_group("real"),
]


@pytest.fixture
def parted():
    with sites() as made:
        yield made


def test_what_a_client_has_goes_to_another_worker_and_the_client_is_told_of_the_gap(parted: Sites, tmp_path: Path):
    member, client = tmp_path / "member", tmp_path / "client"
    running = []

    def start(site: int, out: Path, what: str, where: str) -> None:
        command = [*parted.before(site), sys.executable, "-m", "tests.real.vanished", what, where]
        with out.open("w") as file:
            running.append(subprocess.Popen(command, stdout=file, cwd=ROOT))

    try:
        start(0, member, "member", f"{parted.ADDRESSES[0]}:0")
        eventually(lambda: member.read_text().startswith("serves"), "the member serves")
        port = member.read_text().split()[1]
        start(1, client, "client", f"client://{parted.ADDRESSES[0]}:{port}/vanished")
        eventually(lambda: "taken" in member.read_text(), "the client has taken the job")
        parted.cut()
        eventually(lambda: "again a job" in member.read_text(), "the member's own worker is given the job")
        eventually(lambda: "gap" in client.read_text(), "the client is told")
    finally:
        for process in running:
            process.kill()
            process.wait()
