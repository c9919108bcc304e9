"""The access list as a machine: changes, what is refused, snapshots, time."""

import pytest

from pluribus.access import machine as machines
from pluribus.access import words
from pluribus.access.machine import AccessList
from pluribus.access.words import Rule, Token, User
from pluribus.group.host.machine import Ground, Refusal
from pluribus.group.once import OrderedSessions

CLERK = Rule("ann", "queue", "orders", "send")


@pytest.fixture
def access():
    return made()


def made():
    machine = AccessList(Ground(1, lambda row, size: None, lambda: 0, OrderedSessions()))
    machine.restore([])
    return machine


def do(machine, command):
    """The reason, if it was refused; else the version."""
    effects = machine.prepare(1, [1], [words.encode(command)])
    if isinstance(effects, Refusal):
        return effects.reason
    machine.commit(effects)
    machine.validate()
    return effects.results[0].version


def test_with_a_user_go_its_tokens_and_its_rules(access):
    assert do(access, words.PutUser(User("ann", "hash", ["clerk"]))) == 1
    assert do(access, words.PutRule(CLERK)) == 2
    assert do(access, words.PutRule(Rule("role:clerk", "queue", "orders", "receive"))) == 3
    assert do(access, words.PutToken(Token("t", "ann", b"d", 10))) == 4
    assert do(access, words.DropUser("ann")) == 5
    listed = access.listed()
    assert not listed.users and not listed.tokens and [rule.who for rule in listed.rules] == ["role:clerk"]


def test_what_cannot_be_is_refused_and_changes_nothing(access):
    for command, why in [
        (words.DropUser("ann"), "no user"),
        (words.PutRule(CLERK), "no user"),
        (words.PutToken(Token("t", "ann", b"d", 10)), "no user"),
        (words.DropRule(CLERK), "no such rule"),
        (words.DropToken("t"), "no token"),
        (words.PutUser(User("role:x")), "no name"),
        (words.PutUser(User("anyone")), "no name"),
        (words.PutUser(User("ann"), same_password=True), "whose password"),
    ]:
        assert why in do(access, command)
    assert access.number == 0
    assert isinstance(access.prepare(1, [1], [b"\xc3"]), Refusal)
    assert access.apply(1, 1, words.encode(words.PutUser(User("ann")))).status == words.REFUSED


def test_a_password_stays_when_only_roles_change(access):
    do(access, words.PutUser(User("ann", "hash")))
    do(access, words.PutUser(User("ann", "", ["clerk"]), same_password=True))
    assert access.users["ann"] == User("ann", "hash", ["clerk"])


def test_one_certificate_proves_one_user(access):
    do(access, words.PutUser(User("ann", certificate="ann.example")))
    assert "another user's" in do(access, words.PutUser(User("bob", certificate="ann.example")))


def test_tables_are_bounded(access, monkeypatch):
    monkeypatch.setattr(machines, "USERS_MAX", 1)
    monkeypatch.setattr(machines, "RULES_MAX", 1)
    monkeypatch.setattr(machines, "TOKENS_MAX", 1)
    do(access, words.PutUser(User("ann")))
    do(access, words.PutRule(CLERK))
    do(access, words.PutToken(Token("t", "ann", b"d", 10)))
    assert "1 users" in do(access, words.PutUser(User("bob")))
    assert "1 rules" in do(access, words.PutRule(Rule("ann", "queue", "other", "send")))
    assert "1 tokens" in do(access, words.PutToken(Token("u", "ann", b"d", 10)))


def test_tokens_end_by_the_replicated_time(access):
    do(access, words.PutUser(User("ann")))
    do(access, words.PutToken(Token("t", "ann", b"d", 10)))
    assert access.due_us() == 10
    access.ground.now_us = 10
    access.tick()
    assert not access.tokens and access.number == 3 and access.due_us() is None


def test_a_copy_is_asked_for_by_version_and_a_listing_has_no_secrets(access):
    do(access, words.PutUser(User("ann", "scrypt$hash")))
    do(access, words.PutToken(Token("t", "ann", b"digest", 10)))
    assert access.query(words.encode(words.Copy(2))) == b""
    copy = words.listed_of(access.query(words.encode(words.Copy(1))))
    assert copy.users[0].password == "scrypt$hash" and copy.version == 2
    shown = access.query(words.encode(words.Show()))
    assert b"scrypt$hash" not in shown and b"digest" not in shown


def test_a_snapshot_is_the_same_list(access):
    do(access, words.PutUser(User("ann", "hash", ["clerk"])))
    do(access, words.PutRule(CLERK))
    other = made()
    other.restore([(name, access.encode_part(name)) for name in access.part_names()])
    assert other.listed() == access.listed()
