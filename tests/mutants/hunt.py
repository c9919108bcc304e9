"""The hunt for a mutant: a campaign of the scenario with the broken layer in its stack, until it is found."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pluribus.layers import CATALOGUE
from pluribus.sim.campaign import Outcome, play_seed

SEEDS_MAX = 200


@contextmanager
def released(mutant: type) -> Iterator[None]:
    """Stacks are built with the mutant in place of the layer that it is one of, or of what it says that it replaces."""
    if hasattr(mutant, "replaces"):
        module, name = mutant.replaces
        whole = getattr(module, name)
        setattr(module, name, mutant)
        try:
            yield
        finally:
            setattr(module, name, whole)
        return
    shipped = CATALOGUE[mutant.name]
    CATALOGUE[mutant.name] = mutant
    try:
        yield
    finally:
        CATALOGUE[mutant.name] = shipped


def hunt(mutant: type, seeds: Iterable[int] = range(SEEDS_MAX), scenario: str = "groups") -> Outcome | None:
    """The first seed that finds it."""
    with released(mutant):
        return next((found for seed in seeds if (found := play_seed(scenario, seed)).failure), None)
