"""The interconnection language: what is read, what is printed back, and where mistakes are located."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadPlan
from pluribus.slots.check import plan_of, problems
from pluribus.slots.drawing import draw
from pluribus.slots.keys import prove, proves, salt_of, verifier
from pluribus.slots.language import end_of, parse, printed
from pluribus.slots.plan import (
    ANSWERS,
    ASKS,
    IN,
    INVOKED,
    MANY,
    OUT,
    REQUIRED,
    SHADOW,
    TRANSIENT,
    Connection,
    End,
    Plan,
    Port,
    Role,
    Slot,
)
from tests.slots.plans import FIGURE_2, SHEET

KEY = verifier("open sesame", b"s" * 16, 10)


def test_figure_2():
    plan = plan_of(FIGURE_2)
    assert plan.name == "figure2" and not plan.static and plan.announces
    assert plan.slot("producer") == Slot(
        "producer", REQUIRED, 1, 1, "python producer.py", "", (Port("red", OUT), Port("green", OUT))
    )
    assert plan.slot("consumer1") == Slot("consumer1", TRANSIENT, 0, 1, ports=(Port("in", IN),))
    assert plan.connections[0] == Connection(End("producer", "red"), End("consumer1", "in"), 100, 30.0)


def test_kinds_types_and_occupancies():
    plan = plan_of(SHEET)
    assert [(slot.kind, slot.least, slot.greatest) for slot in plan.slots] == [
        (REQUIRED, 1, 4),
        (REQUIRED, 1, 1),
        (INVOKED, 0, 1),
        (SHADOW, 0, MANY),
    ]
    assert plan.slot("database").ports == (Port("query", ANSWERS, "text", "data"),)
    assert plan.slot("sheet").ports[0] == Port("query", ASKS, "text", "data")
    assert plan.connections[0].ttl_s == 600.0


def test_a_file_is_printed_back_unchanged():
    assert str(parse(FIGURE_2)) == FIGURE_2
    assert plan_of(printed(plan_of(SHEET))) == plan_of(SHEET)


MISTAKES = {
    "bus a\nslot b requierd": (2, 8, "did you mean 'required'?"),
    "bus a\nslto b": (2, 1, "did you mean 'slot'?"),
    "bus a\nslot b {\n  inn x\n}": (3, 3, "did you mean 'in'?"),
    "bus a\nslot b { out x }\nslot c { in y }\nb.x -> d.y": (4, 1, "there is no slot 'd'"),
    "bus a\nslot bee { out x }\nslot c { in y }\nbee.x -> c.z": (4, 1, "slot 'c' has no port 'z'"),
    "bus a\nslot b { out x }\nslot c { out y }\nb.x -> c.y": (4, 1, "connect out to in"),
    "bus a\nslot b { out x : text }\nslot c { in y : data }\nb.x -> c.y": (4, 1, "give both ports one type"),
    "bus a\nslot b { out x }\nslot b": (3, 6, "is there already"),
    "bus a\nslot b { out x": (2, 15, "close it with }"),
    "bus a\nslot b { out x }\nslot c { in y }\nb.x -> c.y ttl 30": (4, 18, "unit"),
    "bus a\nslot b { out x }\nslot c { in y }\nb.x -> c.y ttl 30 x": (4, 19, "use ms, s, min, h, d"),
    "bus a\nslot b { out x }\nslot c { in y }\nb.x -> c.y capacity 0": (4, 21, "from 1 on"),
    "bus a\nslot b 3..2": (2, 6, "greatest of 2"),
    "bus a\nslot b transient 1..2": (2, 6, "means 'required'"),
    "bus a\nslot b invoked": (2, 6, "has no program"),
    "bus a\nslot b required { enrol chief }": (2, 6, "nobody can fill the required slot 'b'"),
    "bus a\nslot router": (2, 6, "the router's own"),
    'bus a\nslot b { program "x }': (2, 18, "does not end on its line"),
    "bus a\nslot b { in x; }": (2, 14, "means nothing here"),
    'bus a\nrole chief "secret"\nslot b': (2, 6, "pluribus slots key"),
    "bus a\nrole chief\nslot b": (3, 1, "'listed'"),
    "slot b": (1, 7, "write 'bus NAME'"),
    "bus a\nbus b": (2, 1, "one file is one bus"),
    "bus a": (1, 1, "the bus has no slot"),
}


@pytest.mark.parametrize("text", MISTAKES, ids=lambda text: text.splitlines()[-1])
def test_a_mistake_has_its_place_and_a_remedy(text):
    line, column, sentence = MISTAKES[text]
    with pytest.raises(BadPlan) as found:
        plan_of(text, "a.bus")
    assert (found.value.line, found.value.column) == (line, column), str(found.value)
    assert sentence in str(found.value) and str(found.value).startswith("a.bus, line ")


def test_doubts_are_no_mistakes():
    plan = plan_of('bus a\nslot b { out x }\nslot c { in y }\nslot d invoked { program "x" in z }\nb.x -> c.y')
    doubts = [found.reason for found in problems(plan)]
    assert "nothing reaches d.z" in doubts and "no message can invoke slot 'd'" in doubts


@given(st.text(alphabet='bus slot{}\n.->"#:0129,inAZ_', max_size=200))
def test_any_text_is_a_plan_or_a_located_mistake(text):
    mistake, plan = None, None
    try:
        plan = plan_of("bus a\n" + text)
    except BadPlan as error:
        mistake = error
    if plan is not None:
        assert plan_of(printed(plan)) == plan
    else:
        assert mistake.line >= 1 and mistake.remedy


names = st.sampled_from(["a", "b_2", "long-name", "Z"])


@st.composite
def plans(draw_):
    given = st.sampled_from([(KEY, False), (KEY, True), ("", True)])
    roles = tuple(Role(name, *draw_(given)) for name in sorted(draw_(st.sets(names))))
    known = (
        st.lists(st.sampled_from(roles), unique=True).map(lambda found: tuple(r.name for r in found))
        if roles
        else st.just(())
    )
    slots = []
    for name in draw_(st.lists(names, unique=True, min_size=1)):
        ports = tuple(
            Port(
                port,
                kind,
                draw_(st.sampled_from(["", "text", "Tick"])),
                draw_(st.sampled_from(["", "data"])) if kind in (ASKS, ANSWERS) else "",
            )
            for port, kind in draw_(st.dictionaries(names, st.sampled_from([OUT, IN, ASKS, ANSWERS]))).items()
        )
        ports = tuple(msgspec.structs.replace(port, answer="" if not port.type else port.answer) for port in ports)
        kind = draw_(st.sampled_from([REQUIRED, TRANSIENT]))
        least = draw_(st.integers(1, 3)) if kind == REQUIRED else 0
        greatest = draw_(st.sampled_from([max(least, 1), 7, MANY]))
        about = draw_(st.text(alphabet='x "\\', max_size=5))
        slots.append(Slot(name, kind, least, greatest, about, about, ports, draw_(known)))
    fits = [
        Connection(
            End(one.name, p.name),
            End(two.name, q.name),
            draw_(st.integers(1, 10**6)),
            draw_(st.sampled_from([0.001, 0.25, 30.0, 86_400.5])),
        )
        for one in slots
        for p in one.ports
        for two in slots
        for q in two.ports
        if (p.kind, q.kind) in ((OUT, IN), (ASKS, ANSWERS)) and p.type == q.type and p.answer == q.answer
    ]
    routes = tuple(draw_(st.lists(st.sampled_from(fits), unique=True))) if fits else ()
    return Plan(
        "bus-1", draw_(st.booleans()), draw_(st.booleans()), tuple(slots), routes, roles, draw_(known), draw_(known)
    )


@given(plans())
def test_what_is_printed_is_read_again(plan):
    assert plan_of(printed(plan)) == plan


@given(plans())
def test_every_slot_port_and_connection_is_drawn(plan):
    picture = draw(plan, {slot.name: 1 for slot in plan.slots})
    assert picture.count("<rect x=") == len(plan.slots)
    assert picture.count("<circle") == sum(len(slot.ports) for slot in plan.slots)
    assert picture.count('<path d="M') == len(plan.connections) + 1


def test_ends_of_connections_from_outside():
    assert end_of("producer.red") == End("producer", "red")
    for wrong in ("producer", "a.b.c", ".b", "a.", "a b.c"):
        with pytest.raises(BadPlan, match=r"write SLOT\.PORT"):
            end_of(wrong)


def test_a_passphrase_is_proved_and_not_told():
    rounds, salt = salt_of(KEY)
    proof = prove("open sesame", rounds, salt, b"challenge 1")
    assert proves(KEY, b"challenge 1", proof)
    assert not proves(KEY, b"challenge 2", proof), "a proof that was overheard is worth nothing"
    assert not proves(KEY, b"challenge 1", prove("open simsim", rounds, salt, b"challenge 1"))
    assert not proves(KEY, b"challenge 1", proof[:-1])
