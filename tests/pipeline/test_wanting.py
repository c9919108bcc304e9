"""Which topics a source takes: its one expression for all patterns says what the bus says of each."""

import pytest

from pluribus.pipeline.options import HIDDEN, Settings
from pluribus.pubsub.topics import matches

TOPICS = ["a", "a/b", "a/b/c", "b", "a.b", "axb", "ab/c", f"{HIDDEN}one", "pluribus/other", "+x"]
PATTERNS = ["#", "a", "a/#", "a/+", "+", "+/b/#", "a.b", "pluribus/#", "a,b", "+/c, a/b"]


@pytest.mark.parametrize("given", PATTERNS)
def test_a_source_takes_the_topics_that_match(given):
    settings = Settings({"topics": given})
    for topic in TOPICS:
        patterns = [one.strip() for one in given.split(",")]
        seen = [one for one in patterns if not topic.startswith(HIDDEN) or one.startswith("pluribus/")]
        assert settings.wants(topic) == any(matches(pattern, topic) for pattern in seen), topic
