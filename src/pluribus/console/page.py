"""The first page of the console: software buses, their slots live, the graph, and routes that can be changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from nicegui import ui

from ..core.errors import PluribusError
from .software_buses import SoftwareBuses

REFRESH_S = 0.7
SLOT_OF_THE_GRAPH = (
    "(event) => { const slot = event.target.closest('g[id^=slot-]'); if (slot) emit(slot.id.slice(5)); }"
)


class Page:
    """One browser's view. Parts are drawn anew when what they show has changed."""

    def __init__(self, model: SoftwareBuses) -> None:
        self._model = model
        self._slot = ""
        ui.page_title("Pluribus")
        with ui.header().classes("items-center"):
            ui.label("Software buses").classes("text-h6")
            ui.space()
            key = ui.input("Passphrase of a role", password=True).props("dark dense data-test=key")
            key.on_value_change(self._key_given)
        with ui.row().classes("w-full no-wrap"):
            self._buses = ui.column().classes("w-64").props("data-test=buses")
            with ui.column().classes("grow"):
                self._slots = ui.column().classes("gap-1").props("data-test=slots")
                self._properties = ui.column().classes("font-mono text-sm gap-0").props("data-test=properties")
                self._graph = ui.element("div").classes("cursor-pointer").props("data-test=graph")
                self._graph.on("click", lambda event: self._show(event.args), js_handler=SLOT_OF_THE_GRAPH)
                self._graph.on("dblclick", lambda event: self._start(event.args), js_handler=SLOT_OF_THE_GRAPH)
                self._routes = ui.column().props("data-test=routes")
                self._adding = ui.row().classes("items-end")
                self._draw_adding()
                self._complaint = ui.label().classes("text-negative").props("data-test=complaint")
        self._timer = ui.timer(REFRESH_S, self._refresh)

    def _key_given(self, event: Any) -> None:
        self._model.key = event.value or None

    async def _refresh(self) -> None:
        if await self._model.refresh():
            self._draw()

    def _draw(self) -> None:
        model = self._model
        self._buses.clear()
        with self._buses:
            if not model.buses:
                ui.label("No software bus is advertised: start one with `pluribus slots up FILE`.")
            for advert in model.buses:
                state = "waiting" if advert.waiting else "running"
                text = f"{advert.bus}: {state}, {advert.occupants} occupant{'s' if advert.occupants != 1 else ''}"
                ui.button(text, on_click=self._selecting(advert.bus)).props(f"flat no-caps data-test=bus-{advert.bus}")
        self._complaint.text = model.complaint
        for part in (self._slots, self._graph, self._routes):
            part.clear()
        self._adding.set_visibility(model.shown is not None)
        if model.shown is None:
            self._properties.clear()
            return
        with self._slots:
            ui.label(f"router: {model.shown.router or 'none, every member has the map'}").props("data-test=router")
            for slot in model.shown.plan.slots:
                label = ui.label(f"{slot.name}: {model.state_of(slot.name)}")
                label.classes("cursor-pointer").props(f"data-test=slot-{slot.name}")
                label.on("click", self._showing(slot.name))
                label.on("dblclick", self._starting(slot.name))
            ui.label(
                "A click on a slot, here or in the graph, shows its properties; a double click starts its tool."
            ).classes("text-caption")
        self._draw_properties()
        with self._graph:
            ui.html(model.picture(), sanitize=False)
        with self._routes:
            self._draw_routes()

    def _draw_properties(self) -> None:
        self._properties.clear()
        if self._slot and self._model.shown is not None:
            with self._properties:
                for line in self._model.properties(self._slot):
                    ui.label(line)

    def _draw_routes(self) -> None:
        assert self._model.shown is not None
        for found in self._model.shown.plan.connections:
            source, target = str(found.source), str(found.target)
            with ui.row().classes("items-center"):
                ui.label(f"{found} capacity {found.capacity}, {found.ttl_s:g} s")
                delete = self._doing(partial(self._model.del_route, source, target))
                ui.button(icon="delete", on_click=delete).props(f"flat dense data-test=delete-{source}-{target}")

    def _draw_adding(self) -> None:
        """Once: somebody may be typing there whenever the rest is drawn anew."""
        with self._adding:
            source = ui.input("From SLOT.PORT").props("dense data-test=source")
            target = ui.input("To SLOT.PORT").props("dense data-test=target")
            add = self._doing(lambda: self._model.add_route(source.value or "", target.value or ""))
            ui.button("Add route", on_click=add).props("no-caps data-test=add")
        self._adding.set_visibility(False)

    # What a person does

    def _selecting(self, name: str) -> Callable[[], Awaitable[None]]:
        async def select() -> None:
            self._slot = ""
            await self._model.select(name)
            self._draw()

        return select

    def _showing(self, slot: str) -> Callable[[], None]:
        return lambda: self._show(slot)

    def _show(self, slot: str) -> None:
        self._slot = slot
        self._draw_properties()

    def _starting(self, slot: str) -> Callable[[], Awaitable[None]]:
        return self._doing(lambda: self._model.start(slot))

    def _start(self, slot: str) -> Awaitable[None]:
        return self._starting(slot)()

    def _doing(self, what: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Do it; what cannot be done is said on the page."""

        async def do() -> None:
            try:
                await what()
            except PluribusError as error:
                ui.notify(str(error), type="negative", multi_line=True, timeout=8_000)
            else:
                await self._model.refresh()
                self._draw()

        return do
