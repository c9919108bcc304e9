"""Entries of a replicated cache: the same changes make the same entries, also when the cache is full."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadBody, BadInput
from pluribus.group.cache import Entries, clear, put, remove
from pluribus.wire.bodies import register


@register
@dataclasses.dataclass
class CachedUser:
    user: str


keys = st.sampled_from(["a", "b", 1, 2, "c"])
changes = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, st.integers(0, 9)),
        st.tuples(st.just("remove"), keys, st.none()),
        st.tuples(st.just("clear"), st.none(), st.none()),
    ),
    max_size=30,
)


def encoded(change: tuple) -> bytes:
    what, key, value = change
    return put(key, value) if what == "put" else remove(key) if what == "remove" else clear()


@given(changes, st.integers(1, 4), st.integers(0, 30))
def test_changes_make_what_a_naive_cache_makes_and_a_joiner_goes_on_from_a_snapshot(story, entries_max, joins_at):
    first, joiner = Entries(entries_max), Entries(99)
    naive: list[tuple] = []
    for at, change in enumerate(story):
        if at == joins_at:
            joiner.restore(first.snapshot())
        what, key, value = change
        naive = [] if what == "clear" else [entry for entry in naive if entry[0] != key]
        naive = [*naive, (key, value)][-entries_max:] if what == "put" else naive
        first.apply(encoded(change))
        if at >= joins_at:
            joiner.apply(encoded(change))
        assert list(first.values.items()) == naive
    if joins_at < len(story):
        assert list(joiner.values.items()) == naive and joiner.entries_max == entries_max


def test_values_are_whatever_can_be_sent():
    entries = Entries(9)
    for key, value in (("text", "größe"), ("bytes", b"\0"), (3, [1, {"deep": None}]), ("typed", CachedUser("ann"))):
        entries.apply(put(key, value))
        assert entries.values[key] == value
    copy = Entries(9)
    copy.restore(entries.snapshot())
    assert copy.values == entries.values and isinstance(copy.values["typed"], CachedUser)


def test_what_is_no_change_is_counted_and_changes_nothing():
    entries = Entries(2)
    entries.apply(put("a", 1))
    for nonsense in (b"", b"\xc1", b"\x93\x09\xa1a\x92\x00\xc4\x00", "text", None, 5):
        entries.apply(nonsense)
    assert entries.values == {"a": 1} and entries.malformed == 6


def test_what_cannot_be_is_refused():
    with pytest.raises(BadInput, match="no key"):
        put(1.5, "x")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no key"):
        remove(True)
    with pytest.raises(BadBody):
        put("x", object())
    with pytest.raises(BadInput, match="1 or more"):
        Entries(0)
