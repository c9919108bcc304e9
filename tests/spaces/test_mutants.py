"""Every mutant of the spaces is found by a story of its protocol."""

import pytest

from tests.mutants import spaces as mutants
from tests.mutants.hunt import released


@pytest.mark.slow
@pytest.mark.parametrize("mutant", mutants.STORIES, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found(mutant):
    with released(mutant), pytest.raises((AssertionError, KeyError, StopIteration)):
        mutants.STORIES[mutant]()
