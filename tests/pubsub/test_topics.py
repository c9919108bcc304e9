"""The grammar of topics, and the tree of patterns beside the dumbest way to do the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pluribus.core.errors import BadInput, BadTopic
from pluribus.core.limits import TOPIC_CHARS_MAX, TOPIC_LEVELS_MAX
from pluribus.pubsub.topics import checked_topic, is_channel, levels_of, matches, overlap
from pluribus.pubsub.trie import Trie

levels = st.lists(st.sampled_from("abc"), min_size=1, max_size=4)
topics = levels.map("/".join)
patterns = st.builds(
    lambda names, rest: "/".join([*names, *rest]),
    st.lists(st.sampled_from(["a", "b", "c", "+"]), min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
) | st.just("#")


@pytest.mark.parametrize(
    ("topic", "position", "reason"),
    [
        ("", 1, "it is empty"),
        ("/a", 1, "a level is empty"),
        ("a/", 3, "a level is empty"),
        ("a//b", 3, "a level is empty"),
        ("stocks/+/tick", 8, "+ stands for any level in a pattern, and events are published under one topic"),
        ("stocks/#", 8, "# stands for all levels below in a pattern, and events are published under one topic"),
        ("a\nb", 2, "'\\n' cannot be printed"),
        ("x" * (TOPIC_CHARS_MAX + 1), TOPIC_CHARS_MAX + 1, "it has 1025 characters, 1024 is the limit"),
        ("/".join("x" * (TOPIC_LEVELS_MAX + 1)), 65, "it has 33 levels, 32 is the limit"),
        (7, 1, "a topic is a text, not of type int"),
    ],
)
def test_a_topic_that_is_none_is_refused_with_position_reason_and_remedy(topic, position, reason):
    with pytest.raises(BadTopic) as refused:
        checked_topic(topic)
    assert (refused.value.position, refused.value.reason) == (position, reason)
    assert refused.value.remedy and refused.value.remedy in str(refused.value)
    assert isinstance(refused.value, BadInput)


@pytest.mark.parametrize(
    ("pattern", "position", "reason"),
    [
        ("a/#/b", 3, "# is followed by another level"),
        ("a/b+/c", 4, "+ stands beside other characters"),
        ("a/#b", 3, "# stands beside other characters"),
        ("+//#", 3, "a level is empty"),
    ],
)
def test_a_pattern_that_is_none_is_refused_with_position_reason_and_remedy(pattern, position, reason):
    with pytest.raises(BadTopic) as refused:
        levels_of(pattern)
    assert (refused.value.position, refused.value.reason) == (position, reason)


def test_what_signs_stand_for():
    assert matches("stocks/+/tick", "stocks/ibm/tick")
    assert not matches("stocks/+/tick", "stocks/ibm/ny/tick") and not matches("stocks/+", "stocks")
    assert matches("stocks/#", "stocks/ibm/tick") and matches("stocks/#", "stocks") and matches("#", "a/b")
    assert is_channel("stocks/ibm") and not is_channel("stocks/+") and not is_channel("#")


@given(pattern=patterns, other=patterns, topic=topics)
def test_patterns_that_match_one_topic_overlap(pattern, other, topic):
    if matches(pattern, topic) and matches(other, topic):
        assert overlap(pattern, other) and overlap(other, pattern)


@given(one=patterns, other=patterns)
def test_patterns_that_overlap_have_a_topic_in_common(one, other):
    """Every level of the topic is one that either names, or any."""
    if not overlap(one, other):
        return
    ours, theirs = one.split("/"), other.split("/")
    shared = []
    for at in range(max(len(ours), len(theirs))):
        names = [wanted[at] for wanted in (ours, theirs) if at < len(wanted) and wanted[at] not in "+#"]
        shared.append(names[0] if names else "a")
    candidates = ["/".join(shared[:length]) for length in range(1, len(shared) + 1)]
    assert any(matches(one, topic) and matches(other, topic) for topic in candidates)


class TrieBesideAList(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.trie = Trie()
        self.list = set()

    @rule(pattern=patterns, key=st.integers(0, 5))
    def add(self, pattern, key):
        self.trie.add(pattern, key)
        self.list.add((pattern, key))

    @rule(pattern=patterns, key=st.integers(0, 5))
    def remove(self, pattern, key):
        self.trie.remove(pattern, key)
        self.list.discard((pattern, key))

    @rule(topic=topics)
    def match(self, topic):
        found = self.trie.match(topic)
        assert len(found) == len(set(found))
        assert set(found) == {key for pattern, key in self.list if matches(pattern, topic)}

    @invariant()
    def whole(self):
        self.trie.validate()
        assert len(self.trie) == len(self.list)
        assert sorted(self.trie.keys()) == sorted(key for _, key in self.list)


TestTrie = TrieBesideAList.TestCase
