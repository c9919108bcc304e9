"""Mistakes that the stories of the protocols catch."""

import pytest

from tests.conversations import test_joining, test_synchronising
from tests.mutants import conversations as mutants
from tests.mutants.hunt import released

STORIES = {
    mutants.Hoarding: lambda: (
        test_synchronising.test_of_a_writer_with_too_many_gaps_all_keep_the_same_and_nobody_asks_for_the_rest(0)
    ),
    mutants.Forgetful: test_joining.test_who_comes_back_is_not_expelled_by_a_list_that_has_it_among_the_left,
    mutants.Silencing: test_synchronising.test_identities_only_members_answer_for_no_body_and_suppress_nobody,
}


@pytest.mark.parametrize("mutant", mutants.IN_THE_HALL, ids=lambda mutant: mutant.__name__)
def test_the_story_fails_with_the_mutant_and_without_it_does_not(mutant):
    with released(mutant), pytest.raises(AssertionError):
        STORIES[mutant]()
    STORIES[mutant]()
