"""Promises of a replicated log of commands: one history, no acknowledged command is lost, none is done twice, and the
results of clients fit into one order in real time.

They expect these happenings: ``invoke`` and ``ok`` of clients (``id`` is client and number; the body of ``ok`` is an
``Ok``), ``apply`` and ``restore`` of replicas (``id`` is index and life), ``led`` of a leader that was elected or
committed something (``id`` is epoch and keeper), and at the end ``final`` (``id`` is how much was applied, and life;
the body is the state's ``Final``).
"""

from __future__ import annotations

import msgspec

from ...core.errors import Violation
from ..machinery.history import Happening, History


class Ok(msgspec.Struct, frozen=True, array_like=True):
    """The result of a client: the index at which its write was done, or up to which it read, and the value it read."""

    index: int
    key: str = ""
    value: bytes | None = None


class Final(msgspec.Struct, frozen=True, array_like=True):
    """Every effect that ever was, in order, as session and sequence, with its index, key and value."""

    effects: list[tuple[int, int, int, str, bytes]]


ok_of = msgspec.msgpack.Decoder(Ok).decode
final_of = msgspec.msgpack.Decoder(Final).decode


def agreement(history: History) -> int:
    """Each index holds the same command for everybody, and a life sees them in order without a gap."""
    commands: dict[int, bytes] = {}
    next_of: dict[tuple[int, int], int] = {}
    checks = 0
    for h in history.happenings:
        if h.what not in ("apply", "restore"):
            continue
        index, life = h.id
        expected = next_of.get((h.member, life), 0)
        if h.what == "restore":
            if index < expected:
                raise Violation(f"keeper {h.member} was set back from {expected} to {index} at {h.at:.6f}")
            next_of[(h.member, life)] = index
            continue
        checks += 1
        if index != expected:
            raise Violation(f"keeper {h.member} applied {index} at {h.at:.6f}, and {expected} was next")
        next_of[(h.member, life)] = index + 1
        if commands.setdefault(index, h.body) != h.body:
            raise Violation(f"keeper {h.member} applied another command {index} than others at {h.at:.6f}")
    return checks


def one_leader(history: History) -> int:
    """No two keepers lead, or commit, in one epoch."""
    leaders: dict[int, int] = {}
    checks = 0
    for h in history.of("led"):
        checks += 1
        epoch, keeper = h.id
        if leaders.setdefault(epoch, keeper) != keeper:
            raise Violation(f"{keeper:x} and {leaders[epoch]:x} both led epoch {epoch}")
    return checks


def kept(history: History) -> int:
    """Acknowledged commands are in the state of every keeper at the end, at their places; no keeper has another
    state."""
    finals = list(history.of("final"))
    if not finals:
        return 0
    first = finals[0]
    checks = 0
    for h in finals:
        checks += 1
        if h.body != first.body:
            raise Violation(f"keepers {first.member} and {h.member} end in different states")
    done = {(session, sequence): index for session, sequence, index, _, _ in final_of(first.body).effects}
    for h in history.of("ok"):
        ok = ok_of(h.body)
        if ok.value is None:
            checks += 1
            if done.get(h.id) != ok.index:
                raise Violation(f"command {h.id} was acknowledged at index {ok.index} and ended at {done.get(h.id)}")
    return checks


def once(history: History) -> int:
    """No command is done twice, and those of one client are done in its order."""
    finals = list(history.of("final"))
    last: dict[int, int] = {}
    checks = 0
    for session, sequence, index, _, _ in final_of(finals[0].body).effects if finals else ():
        checks += 1
        if sequence != last.get(session, 0) + 1:
            raise Violation(f"command {(session, sequence)} was done at {index}, after {last.get(session, 0)}")
        last[session] = sequence
    return checks


def linearizable(history: History) -> int:
    """In the order of the log, every operation takes effect between its call and its answer, and reads see that order.

    The log is the order to be checked, so there is nothing to search: an operation that was called after another was
    answered comes behind it, and a read returns what the last write before its place wrote.
    """
    finals = list(history.of("final"))
    writes: dict[str, list[tuple[int, bytes]]] = {}
    for _, _, index, key, value in final_of(finals[0].body).effects if finals else ():
        writes.setdefault(key, []).append((index, value))
    answered = -1
    called: dict[tuple[int, int], int] = {}
    checks = 0
    for h in history.happenings:
        if h.what == "invoke":
            called[h.id] = answered
        elif h.what == "ok":
            checks += 1
            ok = ok_of(h.body)
            at = ok.index if ok.value is None else ok.index - 1
            if at < called[h.id]:
                raise Violation(f"{h.id} took effect at {at}, but {called[h.id]} was answered before it was called")
            if ok.value is not None and finals:
                _check_read(h, ok, writes.get(ok.key, []))
            answered = max(answered, at)
    return checks


def _check_read(h: Happening, ok: Ok, writes: list[tuple[int, bytes]]) -> None:
    expected = b""
    for index, value in writes:
        if index >= ok.index:
            break
        expected = value
    if ok.value != expected:
        raise Violation(
            f"a read of {ok.key!r} up to {ok.index} gave {ok.value!r} at {h.at:.6f}, written was {expected!r}"
        )


def finished(history: History) -> int:
    """Liveness: after the last fault every operation was answered, and everybody has applied everything."""
    settled = next((h for h in history.of("settled")), None)
    if settled is None:
        raise Violation("the keepers did not settle after the last fault")
    answered = {h.id for h in history.of("ok")}
    checks = 0
    for h in history.of("invoke"):
        checks += 1
        if h.id not in answered:
            raise Violation(f"operation {h.id} of {h.at:.6f} was never answered")
    return checks
