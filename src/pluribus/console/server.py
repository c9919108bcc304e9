"""The console's process: a member of the bus that serves pages on 127.0.0.1."""

from __future__ import annotations

from typing import Any

from ..core.errors import MissingExtra

HOST = "127.0.0.1"
"""Only people on this machine: everybody who sees the console may start programs with it."""


def serve(url: str | None, port: int, stack: str, key: str | None) -> None:
    """Serve until interrupted."""
    try:
        from nicegui import app, ui
    except ImportError:
        raise MissingExtra("the console needs NiceGUI: pip install 'pluribus[console]'") from None
    from ..runtime.bus import Bus, connect
    from .page import Page
    from .software_buses import SoftwareBuses

    opened: dict[str, Any] = {}

    async def start() -> None:
        bus: Bus = await connect(url, name="console", stack=stack)
        opened["bus"], opened["manager"] = bus, await bus.communications()

    async def stop() -> None:
        if "bus" in opened:
            await opened["bus"].close(timeout=0)

    @ui.page("/")
    def first() -> None:
        model = SoftwareBuses(opened["bus"], opened["manager"])
        model.key = key
        Page(model)
        ui.context.client.on_disconnect(model.close)

    app.on_startup(start)
    app.on_shutdown(stop)
    ui.run(host=HOST, port=port, show=False, reload=False, title="Pluribus", show_welcome_message=False)
