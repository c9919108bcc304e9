"""Stimuli run one after another, and frames pass to whom they concern: in Python and, where that was compiled, in C."""

import gc
import weakref

import pytest

from pluribus._speed import passing as python
from pluribus.core.frame import Frame, Piece, Standing
from tests._speed.both_ends import compiled

both = pytest.mark.parametrize(
    "kind", [pytest.param(python, id="python"), *([pytest.param(compiled, id="c")] if compiled else [])]
)


class Settler:
    def __init__(self, said, name, unsettled=True, then=None):
        self.said, self.name, self.unsettled, self.then = said, name, unsettled, then

    def settle(self):
        self.unsettled = False
        self.said.append(self.name)
        if self.then is not None:
            self.then()


def runner(kind, *settling):
    class Runs(kind.Runner):
        def __init__(self):
            self._running, self._inside = True, False
            self._waiting, self._settling = [], list(settling)

    return Runs()


@both
def test_a_stimulus_from_within_another_is_handled_after_it_and_before_it_settles(kind):
    said = []
    runs = runner(kind, Settler(said, "one"), Settler(said, "settled", unsettled=False), Settler(said, "other"))

    def outer(*given):
        runs.run(said.append, "inner")
        runs.run(lambda: said.append("without"))
        said.append(given)

    assert runs.run(outer, 1, "two") is None
    assert said == [(1, "two"), "inner", "without", "one", "other"]
    assert not runs._inside
    assert runs._waiting == []


@both
def test_what_is_asked_for_while_others_settle_is_a_stimulus_of_its_own(kind):
    said = []
    runs = runner(kind)
    late = Settler(said, "late", unsettled=False)
    first = Settler(said, "first", then=lambda: runs.run(asked))

    def asked():
        said.append("asked")
        late.unsettled = first.unsettled = len(said) < 5

    runs._settling += [late, first]
    runs.run(said.append, "begin")
    assert said == ["begin", "first", "asked", "late", "first", "asked"]


@both
def test_whoever_fails_leaves_the_door_open(kind):
    said = []
    runs = runner(kind, Settler(said, "settled"))

    def fails():
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        runs.run(fails)
    assert said == []
    assert not runs._inside
    runs.run(said.append, "next")
    assert said == ["next", "settled"]
    runs._settling.append(Settler(said, "again", then=fails))
    with pytest.raises(ValueError, match="a mistake"):
        runs.run(said.append, "third")
    assert not runs._inside
    with pytest.raises(TypeError):
        runs.run()


@both
def test_nothing_runs_that_is_stopped(kind):
    said = []
    runs = runner(kind, Settler(said, "settled"))
    runs._running = False
    runs.run(said.append, "never")
    assert said == []


@both
def test_a_frame_passes_to_whom_it_concerns(kind):
    took = []
    wanted = {7}
    to = {name: lambda frame, name=name: took.append((name, frame)) for name in ("own", "one", "other", "after")}
    passes = kind.way({Piece: to["own"]}, [(wanted, to["one"]), ({7, 8}, to["other"])], to["after"])

    def goes(group, *headers):
        frame = Frame(sender=1, group=group, headers=list(headers))
        assert passes(frame) is None
        name, same = took.pop()
        assert same is frame
        assert not took
        return name

    piece, standing = Piece(1, 0, 1, 0), Standing([])
    assert [goes(7), goes(8), goes(9)] == ["one", "other", "after"]
    assert [goes(7, piece), goes(9, standing, piece), goes(7, piece, standing)] == ["own", "own", "one"]
    wanted.clear()
    assert goes(7) == "other", "whom it concerns may change at any time"


@both
def test_what_whoever_takes_it_raises_is_raised(kind):
    def fails(frame):
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        kind.way({}, [], fails)(Frame(sender=1))
    with pytest.raises(TypeError):
        kind.way({}, [], fails)()
    with pytest.raises(AttributeError):
        kind.way({}, [], fails)(object())


@both
def test_a_way_that_leads_to_itself_is_let_go(kind):
    class Layer:
        def up(self, frame):
            """Takes everything."""

    layer = Layer()
    layer.passes = kind.way({Piece: layer.up}, [({1}, layer.up)], layer.up)
    gone = weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None
