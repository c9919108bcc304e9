"""Mistakes in an interconnection file that parses. ``problems`` finds everything; ``checked`` raises the first mistake.
A file with a *mistake* cannot become a bus; a file with a *doubt* can, but is probably not meant so.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .keys import is_verifier
from .language import Source, parse, suggestion
from .plan import FITS, INVOKED, REQUIRED, SHADOW, Connection, End, Plan, Port


class Problem(msgspec.Struct, frozen=True):
    place: str
    """As ``Source.places`` has it."""
    reason: str
    remedy: str
    mistake: bool = True


def checked(source: Source) -> Plan:
    """The plan, or ``BadPlan`` with the first mistake."""
    for found in problems(source.plan):
        if found.mistake:
            raise source.error(found.place, found.reason, found.remedy)
    return source.plan


def plan_of(text: str, file: str = "the plan") -> Plan:
    """Parse and check."""
    return checked(parse(text, file))


def problems(plan: Plan) -> list[Problem]:
    return [*_roles(plan), *_slots(plan), *_connections(plan), *_unreachable(plan)]


def _roles(plan: Plan) -> Iterator[Problem]:
    known = tuple(role.name for role in plan.roles)
    for role in plan.roles:
        if not is_verifier(role.verifier) and (role.verifier or not role.listed):
            yield Problem(
                f"role {role.name}", f"the verifier of role {role.name!r} is none", "make one: `pluribus slots key`"
            )
    for slot in plan.slots:
        unknown = [name for name in slot.enrol if name not in known]
        if slot.kind == REQUIRED and slot.enrol and len(unknown) == len(slot.enrol):
            remedy = suggestion(unknown[0], known, f"write 'role {unknown[0]} \"...\"'")
            yield Problem(slot.name, f"nobody can fill the required slot {slot.name!r}", remedy)
        for name in unknown:
            yield _unknown_role(name, known)
    for name in (*plan.see, *plan.reconfigure):
        if name not in known:
            yield _unknown_role(name, known)


def _unknown_role(name: str, known: tuple[str, ...]) -> Problem:
    remedy = suggestion(name, known, f"write 'role {name} \"...\"'")
    return Problem(f"use {name}", f"there is no role {name!r}", remedy)


def _slots(plan: Plan) -> Iterator[Problem]:
    if not plan.slots:
        yield Problem("", "the bus has no slot", "write 'slot NAME'")
    for slot in plan.slots:
        if slot.kind == INVOKED and not slot.program:
            yield Problem(slot.name, f"the invoked slot {slot.name!r} has no program", 'write program "COMMAND" in it')
        if slot.kind == SHADOW and slot.ports:
            yield Problem(slot.name, f"the shadow slot {slot.name!r} has ports", "remove them, or make it transient")
        if slot.kind == INVOKED and any(port.sends for port in slot.ports):
            yield Problem(
                slot.name,
                f"the invoked slot {slot.name!r} has a port that sends; its program only reads and answers",
                "let the program enrol in another slot",
                mistake=False,
            )


def _connections(plan: Plan) -> Iterator[Problem]:
    for found in plan.connections:
        wrong = connection_problem(plan, found)
        if wrong is not None:
            yield wrong


def connection_problem(plan: Plan, found: Connection) -> Problem | None:
    """The reason why this connection is impossible; also asked when one is added to a running bus."""
    place = str(found)
    wrong = end_problem(plan, found.source) or end_problem(plan, found.target)
    if wrong is not None:
        return msgspec.structs.replace(wrong, place=place)
    source, target = (_port(plan, end) for end in (found.source, found.target))
    assert source is not None and target is not None
    if FITS.get(source.kind) != target.kind:
        reason = f"{found.source} is {source.kind!r} and {found.target} is {target.kind!r}"
        return Problem(place, reason, "connect out to in, and asks to answers")
    for what, one, other in (("messages", source.type, target.type), ("answers", source.answer, target.answer)):
        if one and other and one != other:
            reason = f"{what} of {found.source} are {one!r}, those of {found.target} {other!r}"
            return Problem(place, reason, "give both ports one type, or leave one out")
    return None


def end_problem(plan: Plan, end: End) -> Problem | None:
    """The reason why there is no such port."""
    slot = plan.slot(end.slot)
    if slot is None:
        names = [slot.name for slot in plan.slots]
        remedy = suggestion(end.slot, names, f"there are {', '.join(names) or 'none'}")
        return Problem(str(end), f"there is no slot {end.slot!r}", remedy)
    if slot.port(end.port) is None:
        names = [port.name for port in slot.ports]
        remedy = suggestion(end.port, names, f"it has {', '.join(names) or 'none'}")
        return Problem(str(end), f"slot {end.slot!r} has no port {end.port!r}", remedy)
    return None


def _port(plan: Plan, end: End) -> Port | None:
    slot = plan.slot(end.slot)
    return None if slot is None else slot.port(end.port)


def _unreachable(plan: Plan) -> Iterator[Problem]:
    joined = {end for found in plan.connections for end in (found.source, found.target)}
    for slot in plan.slots:
        for port in slot.ports:
            end = End(slot.name, port.name)
            if end not in joined:
                what = "nothing reaches" if not port.sends else "nobody hears"
                yield Problem(str(end), f"{what} {end}", "connect it, or remove it", mistake=False)
        if slot.ports and not any(End(slot.name, port.name) in joined for port in slot.ports):
            yield Problem(slot.name, f"slot {slot.name!r} is connected with nothing", "connect it", mistake=False)
        if slot.kind == INVOKED and not any(found.target.slot == slot.name for found in plan.connections):
            yield Problem(slot.name, f"no message can invoke slot {slot.name!r}", "connect a port to it", mistake=False)
