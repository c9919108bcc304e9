"""Pyro5: remote objects, one call after another through a proxy."""

from __future__ import annotations

from time import perf_counter

from ...core.errors import MissingExtra
from ..ports import free_port
from ..processes import Role, Together, measure

SETTINGS = "Pyro5: a daemon in one process, a proxy in another, serpent, one connection"
WARM_ROUNDS = 100
NAME = "echo"


def serve(together: Together, port: int) -> None:
    import Pyro5.api
    import Pyro5.server

    class Echo:
        def echo(self, text: str) -> str:
            return text

    daemon = Pyro5.api.Daemon(host="127.0.0.1", port=port)
    daemon.register(Pyro5.server.expose(Echo), NAME)
    together.wait()
    daemon.requestLoop()


def call(together: Together, port: int, rounds: int, text: str) -> None:
    import Pyro5.api

    together.wait()
    trips = []
    with Pyro5.api.Proxy(f"PYRO:{NAME}@127.0.0.1:{port}") as proxy:
        for _ in range(WARM_ROUNDS + rounds):
            started = perf_counter()
            proxy.echo(text)
            trips.append((perf_counter() - started) * 1e6)
    together.answer(trips[WARM_ROUNDS:])


def trips(rounds: int, text: str) -> list[float]:
    """The times of calls, in µs."""
    try:
        import Pyro5  # noqa: F401
    except ImportError:
        raise MissingExtra("Pyro5 is not installed: pip install pluribus[peers]") from None
    port = free_port()
    roles: list[Role] = [(serve, (port,)), (call, (port, rounds, text))]
    return list(measure(roles, 1)[0])
