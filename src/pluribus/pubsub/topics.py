"""The grammar of topics: ``stocks/ibm/tick`` is a topic, ``stocks/+/tick`` and ``stocks/#`` are patterns.

A topic is one or more levels parted by ``/``. A level is not empty, is printable, and holds no ``+`` or ``#``. In a
pattern ``+`` stands for one level, whatever it is; ``#`` comes last and stands for any number of levels, also none: so
``stocks/#`` matches ``stocks`` too. Upper and lower case differ.

A refusal (``BadTopic``) has the position, the reason and the remedy.
"""

from __future__ import annotations

from functools import lru_cache

from ..core.errors import BadTopic
from ..core.limits import TOPIC_CHARS_MAX, TOPIC_LEVELS_MAX, TOPICS_CACHED_MAX

ONE, REST = "+", "#"
EXAMPLE = "write it like stocks/ibm/tick"


@lru_cache(TOPICS_CACHED_MAX)
def checked_topic(topic: str) -> str:
    """The topic itself, or ``BadTopic``."""
    at = 1
    for level in _levels(topic):
        for sign, stands in ((ONE, "any level"), (REST, "all levels below")):
            if sign in level:
                raise BadTopic.at(
                    topic,
                    at + level.index(sign),
                    f"{sign} stands for {stands} in a pattern, and events are published under one topic",
                    "name the level",
                )
        at += len(level) + 1
    return topic


@lru_cache(TOPICS_CACHED_MAX)
def levels_of(pattern: str) -> tuple[str, ...]:
    """The levels of a pattern or topic, or ``BadTopic``."""
    levels = _levels(pattern)
    at = 1
    for place, level in enumerate(levels):
        for sign in (ONE, REST):
            if sign in level and level != sign:
                raise BadTopic.at(
                    pattern, at + level.index(sign), f"{sign} stands beside other characters", "let it be a whole level"
                )
        if level == REST and place + 1 < len(levels):
            raise BadTopic.at(pattern, at, "# is followed by another level", "put it last, or use + for one level")
        at += len(level) + 1
    return levels


def is_channel(pattern: str) -> bool:
    """Whether a pattern is one topic and no other."""
    return not {ONE, REST}.intersection(levels_of(pattern))


def matches(pattern: str, topic: str) -> bool:
    """Whether one pattern matches a topic; ``trie`` does it for many."""
    wanted, levels = levels_of(pattern), topic.split("/")
    for at, level in enumerate(wanted):
        if level == REST:
            return True
        if at >= len(levels) or level not in (ONE, levels[at]):
            return False
    return len(wanted) == len(levels)


def overlap(one: str, other: str) -> bool:
    """Whether some topic matches both patterns: what a publisher advertises and what a subscriber wants."""
    ours, theirs = levels_of(one), levels_of(other)
    for at in range(max(len(ours), len(theirs))):
        left = ours[at] if at < len(ours) else None
        right = theirs[at] if at < len(theirs) else None
        if REST in (left, right):
            return True
        if left is None or right is None or (left != right and ONE not in (left, right)):
            return False
    return True


def _levels(text: str) -> tuple[str, ...]:
    if not isinstance(text, str):
        raise BadTopic.at(repr(text), 1, f"a topic is a text, not of type {type(text).__name__}", EXAMPLE)
    if not text:
        raise BadTopic.at(text, 1, "it is empty", EXAMPLE)
    if len(text) > TOPIC_CHARS_MAX:
        reason = f"it has {len(text)} characters, {TOPIC_CHARS_MAX} is the limit"
        raise BadTopic.at(text, TOPIC_CHARS_MAX + 1, reason, "put what varies into the body or a header")
    if not text.isprintable():
        at = next(place for place, sign in enumerate(text, 1) if not sign.isprintable())
        raise BadTopic.at(text, at, f"{text[at - 1]!r} cannot be printed", "use letters, digits and signs")
    levels = tuple(text.split("/"))
    if "" in levels:
        at = sum(len(level) + 1 for level in levels[: levels.index("")]) + 1
        raise BadTopic.at(text, at, "a level is empty", "put a name between slashes, and none at the ends")
    if len(levels) > TOPIC_LEVELS_MAX:
        at = sum(len(level) + 1 for level in levels[:TOPIC_LEVELS_MAX]) + 1
        raise BadTopic.at(text, at, f"it has {len(levels)} levels, {TOPIC_LEVELS_MAX} is the limit", "use fewer")
    return levels
