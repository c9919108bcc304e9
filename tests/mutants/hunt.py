"""The hunt for a mutant: a campaign of the scenario with the broken part in the place of the shipped one."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pluribus.layers import CATALOGUE
from pluribus.sim.machinery.campaign import Outcome, play_seed

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


def hunt(mutant: type, seeds: Iterable[int] = range(SEEDS_MAX), scenario: str = "groups") -> Outcome | None:
    """The first seed that finds it."""
    with released(mutant):
        return next((found for seed in seeds if (found := play_seed(scenario, seed)).failure), None)
