"""In which order a job starts its queries, and what each waits for. The queries are played."""

import threading

import pytest

from pluribus.pipeline.jobs import Job


class Played:
    """A query that is told what to say."""

    def __init__(self, name, started):
        self.name, self.started = name, started
        self.isActive = True
        self.lastProgress = None
        self.recentProgress = []
        self.status = {"message": "Initializing sources", "isTriggerActive": True, "isDataAvailable": False}

    def queryName(self, name):
        assert name == self.name
        return self

    def option(self, key, value):
        return self

    def start(self):
        self.started.append(self.name)
        return self

    def exception(self):
        return None

    def stop(self):
        self.isActive = False

    def says(self, message, *, busy=False):
        self.status = {"message": message, "isTriggerActive": busy, "isDataAvailable": busy}

    def does(self, rows):
        told = {"batchId": 0, "sources": [{"numInputRows": rows}], "durationMs": {}, "stateOperators": []}
        self.recentProgress = [told]


class Room:
    def __init__(self, one_by_one):
        self.started = []
        self.made = []
        self.queries = {name: Played(name, self.started) for name in ("intake", "golds", "tiers")}
        writers = {name: lambda name=name: self.make(name) for name in self.queries}
        self.job = Job(object(), "room", "/nowhere", {}, lambda *_: writers, one_by_one=one_by_one)
        self.thread = threading.Thread(target=self.job.run, daemon=True)

    def make(self, name):
        self.made.append(name)
        return self.queries[name]

    def has_started(self, *names):
        for _ in range(400):
            if self.started == list(names):
                return True
            threading.Event().wait(0.02)
        return False


@pytest.fixture(params=[True, False])
def room(request):
    found = Room(request.param)
    found.one_by_one = request.param
    found.thread.start()
    yield found
    for query in found.queries.values():
        query.says("Waiting for data to arrive")
    found.job.stop()
    found.thread.join(20)
    assert not found.thread.is_alive()


def test_a_query_is_made_and_started_when_the_one_before_has_begun(room):
    assert room.has_started("intake") and room.made == ["intake"], "its sources are not there yet"
    room.queries["intake"].says("Processing new data", busy=True)
    if room.one_by_one:
        threading.Event().wait(0.3)
        assert room.started == ["intake"], "its first micro-batch is under way"
        room.queries["intake"].does(rows=7)
    assert room.has_started("intake", "golds")
    room.queries["golds"].says("Waiting for data to arrive")
    assert room.has_started("intake", "golds", "tiers"), "it has nothing to do"
