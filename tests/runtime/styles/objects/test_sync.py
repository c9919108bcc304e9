"""Objects without ``await``."""

import uuid

import pytest

import pluribus
from pluribus.core.errors import NoObject, RemoteError
from pluribus.objects import Kqml, handles
from tests.runtime.styles.objects.things import Reading


class Meter:
    def __init__(self) -> None:
        self.heard: list = []

    @handles("ask-one")
    def asked(self, message: Kqml) -> float:
        if message.content == "wrong":
            raise LookupError("nothing here")
        return 21.5

    @handles("tell", Reading)
    def told(self, message) -> None:
        self.heard.append(message.content)

    @pluribus.exposed
    def read(self, offset: float = 0.0) -> float:
        return 21.5 + offset


class Readable:
    def read(self, offset: float = 0.0) -> float: ...


def test_all_of_it_without_await(tmp_path):
    url = f"multicast://objects-{uuid.uuid4().hex[:8]}"
    with pluribus.sync.connect(url, name="a") as a, pluribus.sync.connect(url, name="b") as b:
        meter = Meter()
        here = a.directory.add(meter, "meter", exports=[Readable])
        assert here.local is meter and a.directory.here() == [here]
        shadow = b.directory.find("meter", timeout=10)
        assert shadow == here and len({shadow, here}) == 1
        assert shadow.ask("(ask-one :content degrees)").content == "21.5"
        assert shadow.call("read", 1.0) == 22.5
        with pytest.raises(RemoteError, match="LookupError"):
            b.communicator.ask("meter", "(ask-one :content wrong)")
        answers = b.communicator.ask_all("meter", "(ask-one :content degrees)")
        assert [answer.content for answer in answers] == ["21.5"]
        assert b.omni(Readable, results="all").read(0.5) == [22.0]
        assert b.group_handle(Readable, "meter", results="first").read() == 21.5
        assert b.uni(Readable, shadow).read(offset=2) == 23.5
        with pluribus.sync.connect(f"{url}-other", name="c") as c:
            bridge = c.bridge(a, "meter")
            assert c.directory.find("meter") == bridge and bridge.call("read", 1.0) == 22.5
            c.directory.remove(bridge)
        network = b.virtual_network("meters", mode="multicast")
        network.add(shadow)
        network.multicast("(tell :content hello)")
        shadow.send_object(Reading(1.0))
        b.communicator.send("meter", "(tell :content again)")
        assert len(network) == 1 and len(b.directory.find_all("meters")) == 1
        with b.communicator.subscribe(shadow, "degrees") as updates:
            a.communicator.notify(here, "degrees", 22)
            assert updates.receive(5).content == "22"
        b.queued_calls.open(tmp_path / "calls.db")
        assert b.directory.shadow("meter").call("read", queued=True, timeout=20) == 21.5
        assert [row.aliases for row in b.directory.list()] == [["meter", "meters"]]
        network.delete(shadow)
        a.directory.delete_alias("meter", here)
        a.directory.add_alias("other", here)
        assert b.directory.find("other") == here
        with pytest.raises(NoObject):
            b.directory.find("meter", timeout=0.1)
        guard = Meter()
        a.directory.add(guard)
        a.directory.preempt(here, guard)
        here.send("(tell :content guarded)")
        assert shadow.ask("(ask-one :content degrees)").content == "21.5"
        a.directory.remove(here)
        assert guard.heard == ["guarded"] and set(map(str, meter.heard)) >= {"hello", "again"}
