"""LIKE against a matcher that tries everything."""

from hypothesis import example, given
from hypothesis import strategies as st

from pluribus.filters.like import as_glob, as_like, matcher, pieces_of

letters = st.text("ab%_*[?\\!ä\n", max_size=8)


def matches(text, pattern, escape):
    """As the standard defines it, by trying all lengths for each %."""
    if not pattern:
        return not text
    if escape and pattern[0] == escape:
        return text[:1] == pattern[1] and matches(text[1:], pattern[2:], escape)
    if pattern[0] == "%":
        return any(matches(text[at:], pattern[1:], escape) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and matches(text[1:], pattern[1:], escape)


def valid(pattern, escape):
    try:
        pieces_of(pattern, escape)
    except ValueError:
        return False
    return True


@given(letters, letters, st.sampled_from(["", "!", "\\", "%"]))
@example("aab", "%a%ab", "")
@example("ab", "%b_%", "")
@example("abab", "_%ab%", "")
def test_a_pattern_matches_what_the_standard_says(text, pattern, escape):
    if valid(pattern, escape):
        assert bool(matcher(pieces_of(pattern, escape))(text)) is matches(text, pattern, escape)


@given(letters)
def test_every_printed_form_has_the_same_pieces(pattern):
    pieces = pieces_of(pattern)
    assert pieces_of(as_like(pieces), "\\") == pieces
    assert as_glob(pieces).count("*") >= pieces.count(pieces_of("%")[0])


def test_a_hostile_pattern_takes_one_pass_for_each_piece():
    pattern = "%a_" * 40 + "%b"
    assert not matcher(pieces_of(pattern))("a" * 20_000)
