"""Access lists compiled: what each rule reaches, beside a dumb oracle."""

from itertools import product
from random import Random

import pytest

from pluribus.access.passwords import hashed, proves, token_parts, token_text
from pluribus.access.rules import Decisions, covers, rule_of
from pluribus.access.words import AUDIT, Listed, User
from pluribus.core.errors import BadInput
from pluribus.wire.asking import MEMBERS_ONLY


def matches(pattern, topic):
    """Whether a pattern matches one destination; the grammar of topics, written down plainly."""
    if pattern and pattern[0] == "#":
        return True
    if not pattern or not topic:
        return not pattern and not topic
    return pattern[0] in ("+", topic[0]) and matches(pattern[1:], topic[1:])


def test_a_pattern_covers_another_if_it_matches_all_that_the_other_does():
    topics = [topic for length in range(1, 5) for topic in product("abc", repeat=length)]
    levels = [one for length in range(1, 4) for one in product("ab+", repeat=length)]
    patterns = levels + [(*one, "#") for one in levels if len(one) < 3] + [("#",)]
    for one, other in product(patterns, patterns):
        expected = all(matches(one, topic) for topic in topics if matches(other, topic))
        same = (one, other) == (("+", "#"), ("#",))  # no destination is empty, which the rule need not know
        assert covers(one, other) == (expected and not same), (one, other)


def test_a_thousand_rules_decide_as_one_by_one():
    chance = Random(1)
    names = ["a", "b", "c", "d/e", "d/f", "g/h/i"]
    patterns = [*names, "d/+", "g/#", "+/e"]
    verbs = ("send", "receive", "browse")
    users = [User(f"u{n}", roles=[f"r{n % 7}"]) for n in range(20)]
    who = [*(user.name for user in users), *(f"role:r{n}" for n in range(7)), "anyone"]
    rules = sorted(
        {rule_of(chance.choice(who), f"queue:{chance.choice(patterns)}", chance.choice(verbs)) for _ in range(60)}
    )
    decisions = Decisions(Listed(1, users, rules))
    for user, name, verb in product(users, names, verbs):
        mine = {"anyone", user.name, *(f"role:{role}" for role in user.roles)}
        expected = any(
            rule.who in mine and rule.verb == verb and matches(rule.pattern.split("/"), name.split("/"))
            for rule in rules
        )
        assert decisions.allows(user.name, ("queue", name, verb)) == expected


def test_without_a_list_all_is_allowed_and_with_one_nothing_is_by_default():
    need = ("queue", "orders", "send")
    assert Decisions(Listed()).allows("", need) and Decisions(Listed()).allows("", MEMBERS_ONLY)
    listed = Decisions(Listed(1, [User("ann")]))
    assert not listed.allows("ann", need) and not listed.allows("", need)


def test_no_rule_lets_a_client_write_the_audit_log_or_speak_as_a_member():
    rules = [rule_of("anyone", f"{style}:#", "all") for style in ("topic", "queue", "access")]
    listed = Decisions(Listed(1, [], rules))
    assert listed.allows("", ("topic", "news", "publish")) and listed.allows("", ("topic", AUDIT, "subscribe"))
    assert not listed.allows("", ("topic", AUDIT, "publish")) and not listed.allows("", ("topic", AUDIT, "manage"))
    assert not listed.allows("", MEMBERS_ONLY)
    with pytest.raises(BadInput, match="members"):
        rule_of("anyone", "members:#", "only")


@pytest.mark.parametrize(
    ("destination", "verb", "why"),
    [("orders", "send", "STYLE:NAME"), ("queue:orders", "sned", "no verb"), ("topic:a/#/b", "publish", "no pattern")],
)
def test_a_rule_that_is_none_is_refused_with_the_reason(destination, verb, why):
    with pytest.raises(BadInput, match=why):
        rule_of("ann", destination, verb)


def test_passwords_and_tokens_are_kept_as_hashes():
    kept = hashed("correct horse", bytes(range(16)))
    assert "correct" not in kept and kept.startswith("scrypt$")
    assert proves("correct horse", kept) and not proves("correct horsf", kept)
    assert not proves("", "") and not proves("anything", "nonsense")
    text = token_text("abc", bytes(32))
    id, digest = token_parts(text)
    assert id == "abc" and len(digest) == 32 and token_parts("abc") == ("", token_parts("abc")[1])
