"""The tree's arithmetic: every member once, in as few steps as there can be, for every length, root and shape.

``parts`` depends on the length of a sub-list alone, so what holds for one step of every length holds for every tree: a
proof by induction over all lengths, which is why all of them can be looked at. The walk along a list is made from every
root for some lengths here, and for every length by ``python -m tests.core.every_tree``.
"""

import pytest

from pluribus.core.tree import AT_A_TIME_MAX, FLAT, balanced, median, parts, place, reached, steps
from tests.core.every_tree import walk

MEMBERS_MAX = 2_000
KS = range(1, AT_A_TIME_MAX + 1)
SHAPES = [FLAT, *map(median, KS), *map(balanced, KS)]


def least_steps(members: int, at_a_time: int) -> int:
    """By the definition: who has it can give it to so many others at each step."""
    have, needed = 1, 0
    while have < members:
        have += have * at_a_time
        needed += 1
    return needed


@pytest.mark.parametrize("shape", SHAPES)
def test_the_parts_cover_a_sub_list_of_any_length_once(shape: int):
    for count in range(MEMBERS_MAX):
        at = 0
        for head, length in sorted(parts(count, shape)):
            assert head == at and length >= 0
            at = head + 1 + length
        assert at == count


@pytest.mark.parametrize("k", KS)
def test_the_number_of_steps_is_the_least_for_any_number_of_members(k: int):
    needed = [0]  # by the number of others
    for count in range(1, MEMBERS_MAX):
        sent = parts(count, median(k))
        needed.append(max(turn // k + 1 + needed[length] for turn, (_, length) in enumerate(sent)))
    for count, found in enumerate(needed):
        assert found == steps(count, k) == least_steps(count + 1, k)


@pytest.mark.parametrize("k", KS)
def test_who_has_more_to_do_gets_it_first(k: int):
    for shape in (median(k), balanced(k)):
        for count in range(MEMBERS_MAX):
            lengths = [length for _, length in parts(count, shape)]
            assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("degree", KS)
def test_a_balanced_tree_has_a_bounded_number_of_children(degree: int):
    assert all(len(parts(count, balanced(degree))) == min(degree, count) for count in range(MEMBERS_MAX))


SIZES = [*range(1, 101), 127, 128, 129, 200, 255, 256, 257, 1_000, MEMBERS_MAX]


@pytest.mark.parametrize("shape", SHAPES)
def test_from_any_root_each_member_is_reached_once_by_one_that_has_it(shape: int):
    for size in SIZES:
        for root in sorted({0, 1 % size, size // 3, size - 1}):
            have = {root}
            for sender, target in reached(size, root, shape):
                assert sender in have and target not in have
                have.add(target)
            assert have == set(range(size))


@pytest.mark.parametrize("k", KS)
def test_trees_of_one_length_differ_by_the_shift_of_their_roots_alone(k: int):
    """Each member once and in the least number of steps, from every root."""
    assert sum(walk(size, k) for size in SIZES) == sum(SIZES)


@pytest.mark.parametrize("shape", [FLAT, median(1), median(3), balanced(1), balanced(2)])
def test_a_member_finds_its_place_without_walking_the_tree(shape: int):
    for size in (1, 2, 3, 4, 5, 16, 17, 41):
        for root in range(size):
            children: dict[int, list[int]] = {member: [] for member in range(size)}
            parents = {root: -1}
            for sender, target in reached(size, root, shape):
                children[sender].append(target)
                parents[target] = sender
            for me in range(size):
                found = place(size, root, me, shape)
                assert found.parent == parents[me] and list(found.children) == children[me]


def test_the_papers_example_of_sixteen_hosts():
    assert [head + 1 for head, _ in parts(15, median(1))] == [8, 4, 2, 1]
    sent = list(reached(16, 0, median(1)))
    assert [target for sender, target in sent if sender == 8] == [12, 10, 9]
    assert {target for sender, target in sent if sender in (12, 14)} == {14, 13, 15}
    assert place(16, 0, 12, median(1)).parent == 8


def test_three_at_a_time_reach_sixteen_in_two_steps():
    assert steps(15, 3) == 2
    assert [length for _, length in parts(15, median(3))] == [3, 3, 3, 0, 0, 0]
