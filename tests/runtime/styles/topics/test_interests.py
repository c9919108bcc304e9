"""Subscriptions by context, by concept and by object of interest."""

from collections.abc import Mapping

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadInput
from pluribus.pubsub.concepts import Concept, Field, Vocabulary
from pluribus.pubsub.event import Event
from pluribus.pubsub.places import Near
from tests.harness import new_bus, on_a_loop

BERLIN, POTSDAM = (52.52, 13.405), (52.39, 13.06)


class Aktie(msgspec.Struct, frozen=True):
    name: str
    kurs: float


pluribus.register(Aktie, "tests.Aktie")

SHARES = Vocabulary(
    {
        "share": Concept(
            ["share", "stock", "Aktie"],
            {
                "price": Field({"price": 1, "kurs": 1, "price_cents": 0.01}, {"usd": 0.5, "eur": 1.0}),
                "name": Field({"symbol": 1}),
            },
        ),
        "bond": {"terms": ["bond", "Anleihe"]},
    }
)


async def taken(subscription, count):
    return [(await subscription.receive(10)).body for _ in range(count)]


@on_a_loop
async def test_events_near_a_place_and_the_subscriber_moves():
    async with pluribus.connect(new_bus()) as bus:
        near = Near(*BERLIN, within_m=2_000)
        async with bus.subscribe("taxis/#", where="free", near=near) as taxis:
            places = {"close": (52.53, 13.41), "far": (52.6, 13.41), "potsdam": POTSDAM}
            for name, (lat, lon) in places.items():
                await bus.publish(f"taxis/{name}", {"lat": lat, "lon": lon, "free": True})
            await bus.publish("taxis/close", {"lat": 52.53, "lon": 13.41, "free": False})
            await bus.publish("taxis/nowhere", {"free": True})
            await bus.flush()
            taxis.move(*POTSDAM)
            for name, (lat, lon) in places.items():
                await bus.publish(f"taxis/{name}", {"lat": lat, "lon": lon, "free": True})
            await bus.flush()
            assert [event.topic for event in await taxis.receive_many()] == ["taxis/close", "taxis/potsdam"]
            assert taxis.waiting == 0
        async with bus.subscribe("taxis/#") as everywhere:
            with pytest.raises(BadInput, match="not bound to a place"):
                everywhere.move(*BERLIN)


@pytest.mark.parametrize("wrong", [(91, 0, 5), (0, 181, 5), (0, 0, 0), (0, 0, float("nan"))])
def test_what_is_no_place_is_refused(wrong):
    with pytest.raises(BadInput):
        Near(*wrong)


@on_a_loop
async def test_a_concept_is_asked_for_by_any_of_its_words():
    async with pluribus.connect(new_bus()) as bus:
        asked = {"concept": "aktie", "vocabulary": SHARES}
        async with bus.subscribe(**asked) as every, bus.subscribe("x/#", where="price > 100", **asked) as dear:
            await bus.publish("x/share", {"symbol": "IBM", "price": 150})
            await bus.publish("x/y", Aktie("SAP", 90.0))
            await bus.publish("x/y", {"kind": "STOCK", "name": "GE", "price_cents": 20_000})
            await bus.publish("x/y", {"name": "F", "price": 300, "currency": "usd"}, headers={"concept": "stock"})
            await bus.publish("x/y", {"name": "KO", "price": 300}, headers={"concept": "share", "price.unit": "usd"})
            await bus.publish("x/bond", {"name": "bund", "price": 500})
            await bus.publish("x/y", b"no words")
            found = [await every.receive(5) for _ in range(5)]
            assert [(event.body["name"], event.body["price"]) for event in found] == [
                *(("IBM", 150), ("SAP", 90.0), ("GE", 200.0), ("F", 150.0), ("KO", 150.0))
            ]
            assert [event.headers["term"] for event in found] == ["share", "Aktie", "STOCK", "stock", "share"]
            assert [body["name"] for body in await taken(dear, 4)] == ["IBM", "GE", "F", "KO"]
            assert every.waiting == dear.waiting == 0
        with pytest.raises(BadInput, match="it knows bond, share"):
            bus.subscribe(concept="option", vocabulary=SHARES)
        with pytest.raises(BadInput, match="vocabulary="):
            bus.subscribe(concept="share")


@pytest.mark.parametrize("unit", [["usd"], {"usd": 1}, 5, None])
def test_a_unit_that_is_no_word_is_none(unit):
    event = Event({"price": 300}, 1, (1, 1), "share", 0.0, {"price.unit": unit})
    assert SHARES.translated(event, "share").body == {"price": 300}


def test_a_term_stands_for_one_concept():
    with pytest.raises(BadInput, match="choose one of them"):
        Vocabulary({"share": {"terms": ["paper"]}, "bond": {"terms": ["Paper"]}})
    with pytest.raises(BadInput, match="give it terms"):
        Vocabulary({"share": {"words": []}})
    assert SHARES.about(Event({}, 1, (1, 1), "a/b", 0.0)) is None


@on_a_loop
async def test_changes_of_an_object_are_told_and_its_values_retained():
    url = new_bus()
    async with pluribus.connect(url) as owner, pluribus.connect(url) as other:
        async with other.subscribe(object="stocks/ibm", property="price", where="value > 100") as dear:
            await owner.wait_for(2)
            ibm = await owner.observed("stocks/ibm", price=99.0, volume=7)
            ibm.price = 101.0
            ibm.price = 101.0
            ibm.volume = 8
            await ibm.set(price=102.0)
            changes = await taken(dear, 2)
            assert [(c.object, c.property, c.before, c.value) for c in changes] == [
                ("stocks/ibm", "price", 99.0, 101.0),
                ("stocks/ibm", "price", 101.0, 102.0),
            ]
            assert dear.waiting == 0
        assert (ibm.price, ibm.properties()) == (102.0, {"price": 102.0, "volume": 8})
        async with other.subscribe(object="stocks/ibm") as late:
            assert {change.property: change.value for change in await taken(late, 2)} == {"price": 102.0, "volume": 8}
        with pytest.raises(AttributeError):
            ibm.colour  # noqa: B018
        with pytest.raises(BadInput):
            await ibm.set(_hidden=1)
        with pytest.raises(BadInput):
            other.subscribe("a", object="stocks/ibm")


class Nowhere(msgspec.Struct):
    price: float


class Anything(msgspec.Struct):
    """Not registered itself, but what is below it is."""


class Something(Anything):
    price: float


pluribus.register(Something, "tests.runtime.Something")


@on_a_loop
async def test_a_type_that_no_body_has_is_refused_and_a_base_class_is_not():
    async with pluribus.connect(new_bus(), store=":memory:", serve="127.0.0.1:0") as bus:
        url = f"client://127.0.0.1:{bus.doors[0].address[1]}/{bus.url.bus}"
        async with pluribus.connect(url) as client:
            for one in (bus, client):
                for options in ({}, {"durable": "name"}):
                    with pytest.raises(BadInput, match=r"call pluribus.register\(Nowhere\) first"):
                        one.subscribe("t", type=Nowhere, **options)
                    with pytest.raises(BadInput, match="is no type"):
                        one.subscribe("t", type="Tick", **options)
        with pytest.raises(BadInput, match="register"):

            @bus.on("t")
            async def called(body: Nowhere): ...

        for wanted in (object, dict, int, bytes, type(None), Mapping):
            bus.subscribe("t", type=wanted)
        async with bus.subscribe("t", type=Anything) as events:
            await bus.publish("t", Something(1.0))
            assert (await events.receive(5)).body == Something(1.0)


@on_a_loop
async def test_what_only_live_events_have_is_refused_with_durable_ones():
    async with pluribus.connect(new_bus(), store=":memory:", serve="127.0.0.1:0") as bus:
        url = f"client://127.0.0.1:{bus.doors[0].address[1]}/{bus.url.bus}"
        async with pluribus.connect(url) as client:
            for one in (bus, client):
                with pytest.raises(BadInput, match=r"^shared= is for live events, and durable= and start= read kept"):
                    one.subscribe("t", durable="name", shared="workers")
                with pytest.raises(BadInput, match=r"^guarantee= is for live events: leave it out"):
                    one.subscribe("t", start="earliest", guarantee="total")
                one.subscribe("t", durable="name", shared=None)
                for given in ({"age": "1 day"}, {"size": "10 GB"}, {"age": True}, {"age": float("nan")}, {"size": -1}):
                    with pytest.raises(BadInput, match=r"(seconds|use 0 for no limit)"):
                        await one.durable.retain("t", **given)
