"""A test that is a coroutine inside a world."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from pluribus import sim


def in_a_world(**options: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[[], None]]:
    """Open a world with these options and hand it to the test."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[[], None]:
        async def main() -> None:
            async with sim.world(**options) as world:
                await test(world)
                world.validate()

        def run() -> None:
            sim.run(main())

        functools.update_wrapper(run, test)
        del run.__wrapped__  # pytest would take the test's parameter for a fixture
        return run

    return decorate
