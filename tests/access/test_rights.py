"""Every word that a client can say names the right that it needs, or says in writing why it needs none."""

import contextlib
import types
import typing

import msgspec
import pytest

import pluribus.runtime.machines.kinds  # noqa: F401 - styles tell their rights through it
from pluribus.access import words as access_words
from pluribus.access.rules import VERBS
from pluribus.core.errors import MalformedFrame
from pluribus.group.host import rights
from pluribus.group.host.requests import Await, Call, Examine, Fetch, InMemory, Make, Open, Order, Resolve, Transact
from pluribus.group.requests import SendGroup
from pluribus.pubsub.consumer_groups import words as consumer_words
from pluribus.pubsub.durable import commands as topic_words
from pluribus.queues import words as queue_words
from pluribus.runtime.styles import ANSWERED, style_at
from pluribus.spaces import words as space_words
from pluribus.transactions import words as transaction_words
from pluribus.wire.asking import MEMBERS_ONLY, needs_of, words_of

MACHINES = {
    "queue.": queue_words,
    "space/": space_words,
    "spaces": space_words,
    "transactions": transaction_words,
    "consumers/": consumer_words,
    "access": access_words,
}


@pytest.mark.parametrize("style", sorted(name for name, place in ANSWERED.items() if isinstance(place, str)))
def test_every_question_names_its_right_or_why_it_needs_none(style):
    style_at(ANSWERED[style])
    words = words_of(style)
    assert set(words.rights) == set(words.questions)
    assert all(len(right.split()) > 4 for right in words.rights.values() if isinstance(right, str))


def sample(word):
    """Any question of this type; what it says is nonsense."""
    plain = {str: "a", int: 1, bytes: b"", list: [], tuple: (), float: 0.0, bool: False, dict: {}}
    values = []
    for field in msgspec.structs.fields(word):
        if not field.required:
            break
        kind = field.type
        while typing.get_origin(kind) is typing.Annotated:
            kind = typing.get_args(kind)[0]
        kinds = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
        known = [plain[typing.get_origin(one) or one] for one in kinds if (typing.get_origin(one) or one) in plain]
        values.append(known[0] if known else Make("queue.a", "queue"))
    return word(*values)


@pytest.mark.parametrize("style", sorted(name for name, place in ANSWERED.items() if isinstance(place, str)))
def test_every_right_can_be_told_of_its_question(style):
    style_at(ANSWERED[style])
    for word in words_of(style).questions:
        with contextlib.suppress(MalformedFrame):  # the nonsense in it is found
            for need in needs_of(sample(word)):
                kind, _, verbs = need
                known = (*VERBS.get(kind, ()), "any")
                assert need == MEMBERS_ONLY or set(verbs.split("|")) <= set(known), (word, need)


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_verbs_of_machines_are_verbs_of_rules(name):
    rights.rights_of("anything")
    found = rights.of_styles[name]
    verbs = {*found.commands.values(), *found.questions.values(), found.awaits, found.bodies, found.batch}
    said = {one for verb in verbs if isinstance(verb, str) for one in verb.split("|")}
    assert said <= {*VERBS[found.style], "any"}


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_command_and_question_of_a_machine_has_a_verb(name):
    rights.rights_of("anything")
    found, module = rights.of_styles[name], MACHINES[name]
    assert set(found.commands) == set(typing.get_args(module.Command))
    if hasattr(module, "Question"):
        assert set(found.questions) == set(typing.get_args(module.Question))


def test_every_style_with_a_machine_has_said_its_rights():
    from pluribus.runtime.machines.kinds import STYLE_MACHINES

    kinds = {kind for kind, place in STYLE_MACHINES.items() if isinstance(place, str)}
    rights.rights_of("anything")
    assert kinds <= {one.kind for one in rights.of_styles.values()}


def test_what_is_asked_of_machines_is_told_by_their_names():
    send = b"\xc1 a batch"
    attach = queue_words.encode(queue_words.Attach(1, 2, 3))
    assert needs_of(Order("queue.orders", [send, attach])) == {
        ("queue", "orders", "send"),
        ("queue", "orders", "receive"),
    }
    assert needs_of(Order("queue.orders", [b"\xdc\x00\x02\x02\x01"])) == {MEMBERS_ONLY}
    assert tuple(needs_of(Make("queue.orders", "space"))) == (MEMBERS_ONLY,)
    assert tuple(needs_of(Make("queue.orders", "queue"))) == (("queue", "orders", "any"),)
    assert tuple(needs_of(Examine("access", access_words.encode(access_words.Copy())))) == (MEMBERS_ONLY,)
    assert tuple(needs_of(Open("queue.orders", "queue", 1))) == (MEMBERS_ONLY,)
    assert tuple(needs_of(Call("counter", b""))) == (("replica", "counter", "call"),)
    assert tuple(needs_of(Await("queue.orders", 1, 1, 0))) == (("queue", "orders", "receive"),)
    assert tuple(needs_of(Resolve("queue.orders", []))) == (("queue", "orders", "browse"),)
    assert tuple(needs_of(Fetch("queue.orders", 1, 1, 1, 1, 0))) == (("queue", "orders", "receive"),)


def test_a_transaction_needs_what_is_in_it_also_what_others_will_commit():
    parts = [("queue.orders", [b"\xc1 a batch"])]
    assert needs_of(Transact(1, 1, 1, parts)) == {("queue", "orders", "send")}
    put = transaction_words.encode(transaction_words.Put(1, 1, parts))
    assert ("queue", "orders", "send") in needs_of(Order("transactions", [put]))
    detach = topic_words.encode(topic_words.Detach("box"))
    assert needs_of(Transact(1, 1, 1, [("topics", [detach])])) == {("subscription", "box", "use")}


def test_groups_in_which_members_work_are_for_members():
    for group in ("keepers", "topics", "topics/total", "queue.orders", "space/stock", "ask/x"):
        assert tuple(needs_of(SendGroup(group, 0, b""))) == (MEMBERS_ONLY,)
    assert tuple(needs_of(SendGroup("slots/plant", 0, b""))) == (("slots", "plant", "send"),)
    inside = InMemory("keepers", "queue", Make("queue.orders", "queue"))
    assert MEMBERS_ONLY in needs_of(inside)
