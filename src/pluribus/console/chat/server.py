"""The process of ``pluribus chat``: a member of the bus that serves one person's page on 127.0.0.1."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from ...core.errors import BadInput, MissingExtra, PluribusError

if TYPE_CHECKING:
    from .person import Person

HOST = "127.0.0.1"
"""Only people on this machine: everybody who sees the page speaks as its person."""
HOSTS = (HOST, "localhost")
"""Names by which the page may be asked for. A web site whose name leads here, by a trick, is refused."""
PORT = 8_112
PORTS = 64
"""So many are tried, one for each person on this machine."""
RECONNECT_S = 20.0
"""A browser that is silent for so long is gone; when it comes back it loads the page again."""
HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
}


def free_port(wanted: int | None) -> int:
    """The wanted port, or the first one that is free."""
    for port in [wanted] if wanted is not None else range(PORT, PORT + PORTS):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
            return port
    if wanted is not None:
        raise BadInput(f"port {wanted} of {HOST} is taken: give another --port, or none")
    raise BadInput(f"ports {PORT} to {PORT + PORTS - 1} of {HOST} are taken: give --port")


def serve(
    room: str | None, name: str, url: str | None, stack: str, store: str | None, port: int, *, show: bool
) -> None:
    """Serve until interrupted. ``show`` opens a browser."""
    try:
        from nicegui import app
    except ImportError:
        raise MissingExtra("the page needs NiceGUI: pip install 'pluribus[console]', or say --tui") from None
    from ...runtime.bus import Bus, connect
    from .person import Person

    opened: dict[str, Any] = {}

    async def start() -> None:
        try:
            bus: Bus = await connect(url, name=name, stack=stack)
            opened["bus"] = bus
            person = opened["person"] = Person(bus, await bus.conversations(store=store), bus._wall)
            await person.start(room)
        except PluribusError as error:
            opened["error"] = error
            app.shutdown()

    async def stop() -> None:
        if "person" in opened:
            opened["person"].close()
        if "bus" in opened:
            await opened["bus"].close(timeout=0)

    app.on_startup(start)
    app.on_shutdown(stop)
    mount("/", lambda: opened.get("person"), room)
    run(port, show=show)
    if "error" in opened:
        raise opened["error"]


def mount(path: str, person: Any, room: str | None) -> None:
    """Serve a person's page under this path; ``person`` returns the person, or None while there is none."""
    from nicegui import ui

    from .screen import Screen

    @ui.page(path)
    async def page() -> None:
        found: Person | None = person()
        if found is None:
            ui.label("This page is not ready yet: load it again.")
            return
        screen = Screen(found, room)
        ui.context.client.on_delete(screen.close)


def run(port: int, *, show: bool) -> None:
    from nicegui import app, ui
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    @app.middleware("http")
    async def with_headers(request: Any, go_on: Any) -> Any:
        answer = await go_on(request)
        answer.headers.update(HEADERS)
        return answer

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))
    ui.run(
        host=HOST,
        port=port,
        show=show,
        reload=False,
        title="Pluribus",
        show_welcome_message=False,
        tailwind=False,
        reconnect_timeout=RECONNECT_S,
    )
