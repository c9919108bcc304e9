"""The bus secret: where it comes from, where it never goes, and who is refused without it."""

import asyncio
import logging
import pickle
from pathlib import Path

import pytest

from pluribus import connect
from pluribus.bench.ports import free_port
from pluribus.core.errors import BadInput, BadStack
from pluribus.core.secret import Secret
from pluribus.layers.secure import Secure
from pluribus.runtime.bus import BEST_EFFORT, VIEWS
from pluribus.runtime.group.secret import secret_from, secured
from pluribus.runtime.loop.tracing import replay
from tests.harness import eventually, new_bus, on_a_loop

SECRET = "a secret that tests share"
OTHER = "a secret of somebody else"


@pytest.fixture(autouse=True)
def _no_secret_of_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLURIBUS_SECRET", raising=False)
    monkeypatch.delenv("PLURIBUS_SECRET_FILE", raising=False)


# Where it comes from


def test_a_secret_is_bytes_text_or_a_file(tmp_path: Path):
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    for given in (SECRET, SECRET.encode(), file, Secret(SECRET)):
        secret = secret_from(given)
        assert secret is not None and secret.reveal() == SECRET.encode()
    assert secret_from(None) is None


def test_the_surroundings_give_it_if_the_caller_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    file = tmp_path / "secret"
    file.write_text(OTHER)
    monkeypatch.setenv("PLURIBUS_SECRET_FILE", str(file))
    assert secret_from(None).reveal() == OTHER.encode()  # type: ignore[union-attr]
    monkeypatch.setenv("PLURIBUS_SECRET", SECRET)
    assert secret_from(None).reveal() == SECRET.encode()  # type: ignore[union-attr]
    assert secret_from(OTHER).reveal() == OTHER.encode()  # type: ignore[union-attr]


def test_a_file_that_others_can_read_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        secret_from(file)
    assert "can be read by other users" in caplog.text and SECRET not in caplog.text


@pytest.mark.parametrize("wrong", ["short", b"", 16, ["a"] * 16], ids=["short", "empty", "number", "list"])
def test_what_is_no_secret_is_refused_with_a_sentence_that_does_not_repeat_it(wrong: object):
    with pytest.raises(BadInput, match="make one with") as refused:
        connect("inproc://x", secret=wrong)  # type: ignore[arg-type]
    assert "short" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused_with_a_sentence(tmp_path: Path):
    with pytest.raises(BadInput, match="cannot be read from"):
        secret_from(tmp_path / "nothing")


def test_a_secret_puts_secure_directly_above_what_carries_frames():
    assert secured("transport | presence | groups") == "transport | secure | presence | groups"
    assert secured("transport | fragment(path_bytes=900) | detector") == (
        "transport | fragment(path_bytes=900) | secure | detector"
    )
    assert secured("transport | compress | secure | x") == "transport | compress | secure | x"


@on_a_loop
async def test_a_stack_that_names_secure_needs_a_secret():
    with pytest.raises(BadStack, match="needs the bus secret"):
        await connect(new_bus(), stack="transport | secure | presence | window | groups")


# Where it never goes


def test_a_secret_does_not_show():
    secret = Secret(SECRET)
    assert SECRET not in repr(secret) and SECRET not in str(secret) and SECRET not in f"{secret!r:>20}"
    with pytest.raises(BadInput, match="not pickled"):
        pickle.dumps(secret)
    assert not hasattr(secret, "__dict__")


@on_a_loop
async def test_neither_the_secret_nor_a_key_is_in_descriptions_logs_or_traces(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    url, trace = new_bus(), tmp_path / "run.trace"
    with caplog.at_level(logging.DEBUG):
        async with (
            connect(url, name="a", stack=VIEWS, secret=SECRET, trace=trace) as a,
            connect(url, name="b", stack=VIEWS, secret=SECRET) as b,
            connect(url, name="c", stack=VIEWS, secret=OTHER),
        ):
            one, other = await a.group("x"), await b.group("x")
            await one.wait_for(2)
            await other.send(b"a body of b")
            await one.receive(10)
            layer = next(layer for layer in a._stack.layers if isinstance(layer, Secure))
            keys = [SECRET.encode(), *(ring.key for ring in layer._rings.by_name.values())]
            keys += [layer._keys._private.private_bytes_raw(), layer._keys._bus, layer._keys._chance]
            shown = "\n".join([a.describe(), repr(a.stats()), repr(vars(a)), repr(vars(layer)), repr(layer._keys)])
            assert "secure" in shown
            assert SECRET not in shown
    written = trace.read_bytes()
    assert len(keys) > 4 and not any(key in written for key in keys)
    assert b"a body of b" not in written, "what others sent is in a trace as it came: sealed"
    assert SECRET not in caplog.text and "refused" in caplog.text


@on_a_loop
async def _traced(url: str, trace: Path) -> None:
    async with (
        connect(url, name="a", stack=VIEWS, secret=SECRET, trace=trace) as a,
        connect(url, name="b", stack=VIEWS, secret=SECRET) as b,
    ):
        one, other = await a.group("x"), await b.group("x")
        await one.wait_for(2)
        await one.send(b"text")
        await other.receive(10)


def test_a_sealed_run_is_had_again_with_the_secret_and_not_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trace = tmp_path / "run.trace"
    _traced(new_bus(), trace)
    with pytest.raises(BadStack, match="PLURIBUS_SECRET"):
        replay(trace)
    monkeypatch.setenv("PLURIBUS_SECRET", OTHER)
    with pytest.raises(BadInput):
        replay(trace)
    monkeypatch.setenv("PLURIBUS_SECRET", SECRET)
    assert replay(trace)["same"]


# Who is refused


def url_of(scheme: str) -> str:
    return new_bus() if scheme == "inproc" else f"udp://127.0.0.1:{free_port()}/secret"


@pytest.mark.parametrize("stack", [BEST_EFFORT, VIEWS], ids=["best effort", "views"])
@pytest.mark.parametrize("scheme", ["inproc", "udp"])
@pytest.mark.parametrize("theirs", [OTHER, None], ids=["another secret", "no secret"])
def test_a_member_without_the_secret_is_refused_and_both_sides_know_why(
    scheme: str, theirs: str | None, stack: str, caplog: pytest.LogCaptureFixture
):
    @on_a_loop
    async def main() -> None:
        url = url_of(scheme)
        async with (
            connect(url, name="a", stack=stack, secret=SECRET) as a,
            connect(url, name="b", stack=stack, secret=SECRET) as b,
            connect(url, name="stranger", stack=stack, secret=theirs) as stranger,
        ):
            one, other = await a.group("x"), await b.group("x")
            alone = await stranger.group("x")
            await one.wait_for(2)
            await other.wait_for(2)
            await eventually(lambda: f"{stranger.me} was refused by {a.me}" in caplog.text, "it hears of it")
            await eventually(lambda: f"{a.me} refused {stranger.me}" in caplog.text, "and so do we")
            await one.send(b"for members")
            assert (await other.receive(10)).body == b"for members"
            assert list(alone.view.members) == [stranger.me]
            assert set(a.members) == {a.me, b.me}
            assert not alone._channel.inbox

    with caplog.at_level(logging.WARNING):
        main()
    assert "another bus secret, or only one of you has one" in caplog.text


@pytest.mark.parametrize("scheme", ["inproc", "udp"])
def test_members_with_the_secret_talk(scheme: str):
    @on_a_loop
    async def main() -> None:
        url = url_of(scheme)
        async with (
            connect(url, name="a", stack=VIEWS, secret=SECRET) as a,
            connect(url, name="b", stack=VIEWS, secret=SECRET.encode()) as b,
        ):
            one, other = await a.group("x"), await b.group("x", own=False)
            await asyncio.gather(one.wait_for(2), other.wait_for(2))
            for number in range(100):
                await one.send(f"message {number}")
                await other.send({"answer": number})
            got = [(await other.receive(10)).body for _ in range(100)]
            assert got == [f"message {number}" for number in range(100)]
            assert a.stats()["secure"]["refused"] == b.stats()["secure"]["refused"] == 0
            a.validate()
            b.validate()

    main()
