"""The hunt for a mutant: a campaign of the scenario with the broken part in the place of the shipped one."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pluribus.layers import CATALOGUE
from pluribus.sim.machinery.campaign import Outcome, campaign, play_seed

SEEDS_MAX = 200


@contextmanager
def released(mutant: type) -> Iterator[None]:
    """Stacks are built with the mutant in place of the layer that it is one of, or of what it says that it replaces; a
    mutant that is ``of`` a class has methods to take the place of that class's own."""
    if hasattr(mutant, "replaces"):
        module, name = mutant.replaces
        whole = getattr(module, name)
        setattr(module, name, mutant)
        try:
            yield
        finally:
            setattr(module, name, whole)
        return
    if hasattr(mutant, "of"):
        broken = {name: value for name, value in vars(mutant).items() if callable(value) and name != "of"}
        methods = {name: getattr(mutant.of, name) for name in broken}
        for name, value in broken.items():
            setattr(mutant.of, name, value)
        try:
            yield
        finally:
            for name, value in methods.items():
                setattr(mutant.of, name, value)
        return
    layer = CATALOGUE[mutant.name]
    CATALOGUE[mutant.name] = mutant
    try:
        yield
    finally:
        CATALOGUE[mutant.name] = layer


def hunt(
    mutant: type, seeds: Iterable[int] = range(SEEDS_MAX), scenario: str = "groups", sentence: str = ""
) -> Outcome | None:
    """The first seed that finds it, with the sentence if one does; else the first that finds it otherwise."""
    otherwise = None
    with released(mutant):
        for seed in seeds:
            found = play_seed(scenario, seed)
            if found.failure and sentence in found.failure:
                return found
            otherwise = otherwise or (found if found.failure else None)
    return otherwise


def assert_found(mutant: type, seed: int, sentence: str, scenario: str = "groups") -> None:
    """By the seed that is recorded with it, or, if the scenario has changed since, by the hunt, which takes long."""
    found = hunt(mutant, [seed], scenario)
    if found is None or sentence not in found.failure:
        warnings.warn(f"{mutant.__name__} does otherwise in seed {seed}: `python -m tests.mutants`", stacklevel=2)
        assert hunt(mutant, scenario=scenario) is not None, f"{mutant.__name__} survived {SEEDS_MAX} seeds"


def sample(scenario: str, found: Mapping[type, tuple[int, str]], *more: int) -> dict[str, Any]:
    """The sample of a campaign that tests play, and its report: the seeds in which mutants fail, where what is shipped
    passes; and ``more``, such as seeds that once failed."""
    report = campaign(scenario, sorted({seed for seed, _ in found.values()} | set(more)))
    assert (report["failures"], report["reasons"]) == ([], {})
    return report
