"""Identities: they differ where they must, agree where they must, and print so that people can tell them apart."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadInput
from pluribus.core.ids import ALL, Identities, MemberId, checked_name, new_member_id, number_of
from pluribus.core.limits import NAME_CHARS_MAX


@given(st.integers(0, (1 << 64) - 1))
def test_an_identity_fits_the_wire_and_is_never_that_of_everybody(bits: int):
    member = new_member_id(bits)
    assert 1 <= member < 1 << 63
    assert member != ALL
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(int(member))) == member


@given(st.integers(1, 9), st.integers(1, 1_000), st.integers(0, 30), st.slices(30))
def test_a_run_of_identities_is_as_the_list_of_them(sender: int, first: int, count: int, some: slice):
    run = Identities(sender, range(first, first + count))
    each = [(sender, number) for number in range(first, first + count)]
    assert (list(run), len(run), repr(run), run == each, run != [*each, (sender, 0)]) == (
        each,
        count,
        repr(each),
        True,
        True,
    )
    assert run[some] == each[some] and list(reversed(run)) == each[::-1]
    assert [run[place] for place in range(-count, count)] == each * 2
    assert all(one in run for one in each) and (sender, first + count) not in run
    assert hash(run) == hash(Identities(sender, range(first, first + count))) and run != sender


@given(st.integers(1, (1 << 63) - 1))
def test_an_identity_prints_as_a_word_without_letters_that_are_misread(number: int):
    word = str(MemberId(number))
    assert len(word) == 6
    assert not set(word) & set("ilou")
    assert repr(MemberId(number)) == f"<member {word}>"


@given(st.integers(1, (1 << 30) - 1), st.integers(1, (1 << 30) - 1))
def test_words_differ_where_their_thirty_bits_do(one: int, other: int):
    assert (str(MemberId(one)) == str(MemberId(other))) is (one == other)


def test_a_member_is_a_number_like_any_other():
    assert {MemberId(7): "seven"}[7] == "seven"
    assert MemberId(7) == 7


def test_a_group_has_the_same_number_in_every_process():
    script = "from pluribus.core.ids import number_of; print(number_of('alarms'), number_of('größe'))"
    answers = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert answers == {f"{number_of('alarms')} {number_of('größe')}\n"}
    # Pinned, because members of different releases must agree.
    assert number_of("alarms") == 140_657_266_645_765


@given(st.text(min_size=1))
def test_a_groups_number_is_never_that_of_the_bus(name: str):
    assert 0 < number_of(name) < 1 << 48


@pytest.mark.parametrize("name", ["", "a\nb", "x" * (NAME_CHARS_MAX + 1), 7, None, b"bytes", "\x00"])
def test_what_is_no_name_is_refused_in_one_sentence(name: object):
    with pytest.raises(BadInput, match=rf"^the group .* is not a name: use 1 to {NAME_CHARS_MAX} printable char.*$"):
        checked_name(name, "the group")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["x", "x" * NAME_CHARS_MAX, "mit Leerzeichen", "größe/東京"])
def test_a_name_is_returned_as_it_is(name: str):
    assert checked_name(name, "the group") is name
