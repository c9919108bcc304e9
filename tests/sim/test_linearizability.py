"""The search against trying everything."""

from itertools import permutations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.core.errors import SimulationError, Violation
from pluribus.sim.checkers import linearizability
from pluribus.sim.checkers.linearizability import Operation, Register, explain, linearizable
from pluribus.sim.machinery.history import Happening, History

values = st.integers(0, 2)
kinds = st.one_of(
    st.tuples(st.just("get"), st.just(())),
    st.tuples(st.just("put"), st.tuples(values)),
    st.tuples(st.just("cas"), st.tuples(st.none() | values, values)),
    st.tuples(st.just("add"), st.tuples(st.just(1))),
)


@st.composite
def operations(draw) -> Operation:
    (what, arguments), began = draw(kinds), draw(st.integers(0, 8))
    if draw(st.integers(0, 3)) == 0:
        return Operation(what, arguments, began)
    results = {"put": st.none(), "cas": st.booleans(), "get": st.none() | values, "add": st.integers(1, 4)}
    return Operation(what, arguments, began, began + draw(st.integers(0, 4)), draw(results[what]))


def oracle(ops: list[Operation]) -> bool:
    """Every order of every choice of the unknown."""
    known = [op for op in ops if op.known]
    unknown = [op for op in ops if not op.known]
    for choice in range(1 << len(unknown)):
        chosen = known + [op for at, op in enumerate(unknown) if choice >> at & 1]
        if any(explains(order) for order in permutations(chosen)):
            return True
    return False


def explains(order: tuple[Operation, ...]) -> bool:
    model, state = Register(), None
    for at, op in enumerate(order):
        if any(later.ended < op.began for later in order[at + 1 :]):
            return False
        result, state = model.step(state, op)
        if op.known and result != op.result:
            return False
    return True


@settings(max_examples=400)
@given(st.lists(operations(), max_size=5))
def test_the_search_finds_what_trying_everything_finds(ops):
    found = explain(ops, Register())
    assert (found is not None) == oracle(ops)
    if found is not None:
        assert explains(tuple(found))
        assert {id(op) for op in ops if op.known} <= {id(op) for op in found}


@settings(max_examples=50)
@given(st.lists(st.tuples(kinds, st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=60), st.randoms())
def test_what_one_object_did_is_always_explained(story, random):
    """Operations happen at whole moments; callers see them begin earlier and end later, and lose some answers."""
    state, ops = None, []
    for at, ((what, arguments), early, late) in enumerate(story):
        result, state = Register().step(state, Operation(what, arguments, at))
        lost = random.random() < 0.1
        ops.append(
            Operation(what, arguments, at - early)
            if lost
            else Operation(what, arguments, at - early, at + late, result)
        )
    random.shuffle(ops)
    assert explain(ops, Register()) is not None


def test_a_stale_read_is_found():
    ops = [Operation("put", (1,), 0, 1), Operation("put", (2,), 2, 3), Operation("get", (), 4, 5, 1)]
    assert explain(ops, Register()) is None
    assert explain([*ops[:2], Operation("get", (), 2.5, 5, 1)], Register()) is not None


def test_an_unknown_write_explains_a_read_and_does_not_explain_two():
    unknown = Operation("put", (7,), 0)
    reads = [Operation("get", (), 1, 2, 7), Operation("get", (), 3, 4, None)]
    assert explain([unknown, reads[0]], Register()) is not None
    assert explain([unknown, *reads], Register()) is None


def test_a_search_that_is_too_long_is_not_decided(monkeypatch):
    monkeypatch.setattr(linearizability, "STEPS_MAX", 50)
    ops = [Operation("put", (at,), 0, 100) for at in range(20)] + [Operation("get", (), 200, 201, -1)]
    with pytest.raises(SimulationError, match="more keys"):
        explain(ops, Register())


def history(*happenings: tuple[float, str, int, object]) -> History:
    found = History()
    for at, what, number, body in happenings:
        found.add(Happening(at, 1, what, "replica", (1, number), msgspec.msgpack.encode(body)))
    return found


def test_the_checker_reads_histories():
    fine = history(
        (0.0, "call", 1, ["put", "x", 5]),
        (0.1, "call", 2, ["get", "x"]),
        (0.2, "answer", 2, [77, 5]),
        (0.3, "answer", 1, [77, None]),
        (0.4, "call", 3, ["put", "x", 6]),
        (0.5, "refused", 3, None),
        (0.6, "call", 4, ["get", "x"]),
        (0.7, "answer", 4, [77, 5]),
        (0.8, "call", 5, ["get", "x"]),
        (0.9, "answer", 5, [88, None]),  # another life
    )
    assert linearizable(fine) == 4
    fine.add(Happening(1.0, 1, "call", "replica", (1, 6), msgspec.msgpack.encode(["get", "x"])))
    fine.add(Happening(1.1, 1, "answer", "replica", (1, 6), msgspec.msgpack.encode([77, None])))
    with pytest.raises(Violation, match=r"nothing explains what 'x' did.*get"):
        linearizable(fine)
