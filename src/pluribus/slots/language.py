"""The module interconnection language: text to ``Plan`` and back.

::

    # Figure 2 of the report.
    bus figure2                       # add 'static' if its connections never change, 'quiet' for no announcements

    role operator "scram$..."         # the verifier of a passphrase; `pluribus slots key` prints one
    role guard listed                 # the access list says who has it; a role may have a passphrase besides
    reconfigure operator              # who may change routes; 'see' says who may look

    slot producer required {
        program "python producer.py"
        out red
        out green : bytes
    }
    slot consumer1 transient 0..4 {
        enrol operator
        in in
    }
    producer.red -> consumer1.in capacity 100 ttl 30 s

A word ends at a space, a comment at its line's end. Statements may stand in any order: names are looked up when all of
the file is read. Every error has a line, a column and a remedy; a name that is nearly right is suggested. ``Source``
keeps the text, so that a file is printed back unchanged; ``printed`` writes a plan that has no text.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import NoReturn

import msgspec

from ..core.errors import BadPlan
from ..core.limits import NAME_CHARS_MAX, PLAN_CHARS_MAX, SLOT_OCCUPANTS_MAX
from .plan import (
    ANSWERS,
    ASKS,
    CAPACITY,
    MANY,
    PORT_KINDS,
    REQUIRED,
    ROUTER,
    SLOT_KINDS,
    TRANSIENT,
    TTL_S,
    Connection,
    End,
    Plan,
    Port,
    Role,
    Slot,
)

UNITS_S = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
STATEMENTS = ("bus", "role", "see", "reconfigure", "slot")
IN_A_SLOT = ("program", "about", "enrol", *PORT_KINDS)
CONNECTION_WORDS = ("capacity", "ttl")
ARROW = "->"
LISTED = "listed"
PROGRAM_CHARS_MAX = 1_024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_TOKENS = re.compile(
    r"""(?P<skip>[ \t\r\n]+|\#[^\n]*)
    | (?P<arrow>->)
    | (?P<span>\d+\.\.(?:\d+|many))
    | (?P<number>\d+(?:\.\d+)?)
    | (?P<end>[A-Za-z_][A-Za-z0-9_-]*(?<!-)\.[A-Za-z_][A-Za-z0-9_-]*)
    | (?P<name>[A-Za-z_](?:[A-Za-z0-9_]|-(?!>))*)
    | (?P<text>"(?:[^"\\\n]|\\["\\])*")
    | (?P<mark>[{}:,])""",
    re.VERBOSE,
)


class Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    line: int
    column: int


END = "the end of the file"


class Source(msgspec.Struct, frozen=True):
    """A parsed file: the plan, its text as it was, and where each name was given."""

    plan: Plan
    text: str
    file: str = "the plan"
    places: dict[str, tuple[int, int]] = {}
    """Line and column of slots (``consumer1``), ports (``consumer1.in``) and connections (``a.b -> c.d``)."""

    def __str__(self) -> str:
        return self.text

    def error(self, place: str, reason: str, remedy: str) -> BadPlan:
        line, column = self.places.get(place, (1, 1))
        return BadPlan.at(self.file, line, column, reason, remedy)


def parse(text: str, file: str = "the plan") -> Source:
    """The file as data, or ``BadPlan`` with the place of the first mistake in its grammar. ``check`` finds further
    mistakes."""
    if len(text) > PLAN_CHARS_MAX:
        raise BadPlan.at(
            file, 1, 1, f"{len(text):,} characters exceed {PLAN_CHARS_MAX:,}", "split the bus into several"
        )
    return _Parser(text, file).parse()


def suggestion(wrong: str, known: list[str] | tuple[str, ...], otherwise: str) -> str:
    """The remedy for an unknown name: the nearest known one, or the given sentence."""
    near = get_close_matches(wrong, known, 1, 0.6)
    return f"did you mean {near[0]!r}?" if near else otherwise


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.tokens = self._tokens()
        self.at = 0
        self.places: dict[str, tuple[int, int]] = {}
        self.name: str | None = None
        self.static, self.announces = False, True
        self.slots: dict[str, Slot] = {}
        self.roles: dict[str, Role] = {}
        self.connections: dict[tuple[End, End], Connection] = {}
        self.granted: dict[str, tuple[str, ...]] = {}

    def _tokens(self) -> list[Token]:
        found, at, line, start = [], 0, 1, 0
        while at < len(self.text):
            match = _TOKENS.match(self.text, at)
            column = at - start + 1
            if match is None:
                raise self._unreadable(at, line, column)
            kind, text = match.lastgroup or "", match.group()
            if kind != "skip":
                found.append(Token(kind, text, line, column))
            else:
                line += text.count("\n")
                if "\n" in text:
                    start = at + text.rfind("\n") + 1
            at = match.end()
        found.append(Token("eof", END, line, at - start + 1))
        return found

    def _unreadable(self, at: int, line: int, column: int) -> BadPlan:
        if self.text[at] == '"':
            reason, remedy = "a text does not end on its line", 'close it with ", and write \\" for one inside it'
        else:
            reason, remedy = f"{self.text[at]!r} means nothing here", "names are letters, digits, _ and -"
        return BadPlan.at(self.file, line, column, reason, remedy)

    # Reading tokens

    def here(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        self.at += token.kind != "eof"
        return token

    def taken(self, *texts: str) -> bool:
        if self.here().text in texts and self.here().kind != "text":
            self.at += 1
            return True
        return False

    def fail(self, token: Token, reason: str, remedy: str) -> NoReturn:
        raise BadPlan.at(self.file, token.line, token.column, reason, remedy)

    def expect(self, kind: str, what: str, example: str) -> Token:
        token = self.take()
        if token.kind != kind:
            self.fail(token, f"{token.text!r} stands where {what} should", f"write {example}")
        return token

    def named(self, what: str) -> Token:
        token = self.expect("name", f"the name of {what}", "letters, digits, _ and -, beginning with a letter")
        if len(token.text) > NAME_CHARS_MAX:
            self.fail(token, f"a name of {len(token.text)} characters", f"use at most {NAME_CHARS_MAX}")
        return token

    def quoted(self, what: str) -> str:
        token = self.expect("text", what, 'it in quotes, as "text"')
        text = re.sub(r"\\(.)", r"\1", token.text[1:-1])
        if len(text) > PROGRAM_CHARS_MAX:
            self.fail(token, f"{what} has {len(text)} characters", f"use at most {PROGRAM_CHARS_MAX}")
        return text

    # Statements

    def parse(self) -> Source:
        while self.here().kind != "eof":
            token = self.take()
            if token.kind == "end":
                self.connection(token)
            elif token.kind == "name" and token.text in STATEMENTS:
                getattr(self, f"read_{token.text}")(token)
            else:
                remedy = suggestion(
                    token.text, STATEMENTS, f"begin with {', '.join(STATEMENTS)} or a connection such as a.out -> b.in"
                )
                self.fail(token, f"{token.text!r} begins no statement", remedy)
        if self.name is None:
            self.fail(self.here(), "the bus has no name", "write 'bus NAME'")
        plan = Plan(
            self.name,
            self.static,
            self.announces,
            tuple(self.slots.values()),
            tuple(self.connections.values()),
            tuple(self.roles.values()),
            self.granted.get("see", ()),
            self.granted.get("reconfigure", ()),
        )
        return Source(plan, self.text, self.file, self.places)

    def read_bus(self, token: Token) -> None:
        if self.name is not None:
            self.fail(token, "a second 'bus'", "one file is one bus: remove it")
        self.name = self.named("the bus").text
        while self.here().text in ("static", "initial", "quiet"):
            word = self.take().text
            self.static |= word == "static"
            self.announces &= word != "quiet"

    def read_role(self, token: Token) -> None:
        name = self.named("a role")
        if name.text in self.roles:
            self.fail(name, f"role {name.text!r} is there already", "give another name")
        self.places[f"role {name.text}"] = (name.line, name.column)
        verifier = "" if self.here().text == LISTED else self.quoted("the verifier of its passphrase, or 'listed',")
        self.roles[name.text] = Role(name.text, verifier, self.taken(LISTED))

    def read_see(self, token: Token) -> None:
        self.granted["see"] = self.granted.get("see", ()) + self.names("a role")

    def read_reconfigure(self, token: Token) -> None:
        self.granted["reconfigure"] = self.granted.get("reconfigure", ()) + self.names("a role")

    def names(self, what: str) -> tuple[str, ...]:
        found = [self.named(what)]
        while self.taken(","):
            found.append(self.named(what))
        for token in found:
            self.places.setdefault(f"use {token.text}", (token.line, token.column))
        return tuple(token.text for token in found)

    def read_slot(self, token: Token) -> None:
        name = self.named("a slot")
        if name.text == ROUTER:
            self.fail(name, f"the slot {ROUTER!r} is the router's own", "give another name")
        if name.text in self.slots:
            self.fail(name, f"slot {name.text!r} is there already", "give another name, or join the two")
        self.places[name.text] = (name.line, name.column)
        kind, span = "", None
        while self.here().kind in ("name", "span", "number") and self.here().line == name.line:
            word = self.take()
            if word.kind == "span":
                span = self.span(word)
            elif word.kind == "number":
                span = self.span(Token("span", f"{word.text}..{word.text}", word.line, word.column))
            elif word.text in SLOT_KINDS:
                kind = word.text
            else:
                remedy = suggestion(word.text, SLOT_KINDS, f"use {', '.join(SLOT_KINDS)}, or an occupancy such as 0..4")
                self.fail(word, f"{word.text!r} is no kind of slot", remedy)
        kind = kind or (REQUIRED if span is not None and span[0] > 0 else TRANSIENT)
        least, greatest = span or ((1, 1) if kind == REQUIRED else (0, 1))
        if least > greatest:
            self.fail(name, f"slot {name.text!r} has a least occupancy of {least} and a greatest of {greatest}", "swap")
        if (least > 0) != (kind == REQUIRED):
            remedy = "a least occupancy of one or more means 'required', of 0 any other kind"
            self.fail(name, f"slot {name.text!r} is {kind} with a least occupancy of {least}", remedy)
        self.slots[name.text] = self.body(name, Slot(name.text, kind, least, greatest))

    def span(self, token: Token) -> tuple[int, int]:
        low, _, high = token.text.partition("..")
        if "." in low:
            self.fail(token, f"{token.text!r} is no occupancy", "use whole numbers, such as 0..4 or 1..many")
        greatest = MANY if high == "many" else int(high)
        if greatest > SLOT_OCCUPANTS_MAX or greatest == 0:
            self.fail(token, f"a greatest occupancy of {greatest}", f"use 1 to {SLOT_OCCUPANTS_MAX}, or many")
        return int(low), greatest

    def body(self, name: Token, slot: Slot) -> Slot:
        if not self.taken("{"):
            return slot
        ports: dict[str, Port] = {}
        while not self.taken("}"):
            token = self.take()
            if token.kind == "eof":
                self.fail(token, f"slot {name.text!r} does not end", "close it with }")
            if token.kind != "name" or token.text not in IN_A_SLOT:
                remedy = suggestion(token.text, IN_A_SLOT, f"a slot has {', '.join(IN_A_SLOT)}")
                self.fail(token, f"{token.text!r} is nothing that a slot has", remedy)
            if token.text == "program":
                slot = msgspec.structs.replace(slot, program=self.quoted("the program"))
            elif token.text == "about":
                slot = msgspec.structs.replace(slot, about=self.quoted("the description"))
            elif token.text == "enrol":
                slot = msgspec.structs.replace(slot, enrol=slot.enrol + self.names("a role"))
            else:
                port = self.port(token.text)
                if port.name in ports:
                    self.fail(token, f"slot {name.text!r} has a port {port.name!r} already", "give another name")
                self.places[f"{name.text}.{port.name}"] = (token.line, token.column)
                ports[port.name] = port
        return msgspec.structs.replace(slot, ports=tuple(ports.values()))

    def port(self, kind: str) -> Port:
        name, type, answer = self.named("a port").text, "", ""
        if self.taken(":"):
            type = self.named("a type").text
            if self.taken(ARROW):
                token = self.here()
                answer = self.named("a type").text
                if kind not in (ASKS, ANSWERS):
                    self.fail(token, f"port {name!r} has a type of answers and is {kind!r}", "use asks or answers")
        return Port(name, kind, type, answer)

    def connection(self, first: Token) -> None:
        source = _end(first)
        self.expect("arrow", "an arrow", f"{first.text} -> SLOT.PORT")
        target = _end(self.expect("end", "the port that the connection leads to", "SLOT.PORT"))
        capacity, ttl_s = CAPACITY, TTL_S
        while self.here().kind == "name" and self.here().line == first.line:
            word = self.take()
            if word.text == "capacity":
                token = self.expect("number", "a number of messages", "a whole number, such as 100")
                if "." in token.text or not 0 < int(token.text) < 1 << 31:
                    self.fail(token, f"a capacity of {token.text}", "use a whole number from 1 on")
                capacity = int(token.text)
            elif word.text == "ttl":
                ttl_s = self.duration()
            else:
                remedy = suggestion(word.text, CONNECTION_WORDS, "a connection has capacity and ttl")
                self.fail(word, f"{word.text!r} is nothing that a connection has", remedy)
        made = Connection(source, target, capacity, ttl_s)
        if (source, target) in self.connections:
            self.fail(first, f"{made} is there already", "remove one of the two")
        self.places[str(made)] = (first.line, first.column)
        self.connections[source, target] = made

    def duration(self) -> float:
        number = self.expect("number", "a time to live", "a number and a unit, such as 30 s")
        unit = self.expect("name", "the unit of the time to live", f"one of {', '.join(UNITS_S)}")
        if unit.text not in UNITS_S:
            self.fail(unit, f"{unit.text!r} is no unit", f"use {', '.join(UNITS_S)}")
        seconds = float(number.text) * UNITS_S[unit.text]
        if not 0 < seconds < 1e9:
            self.fail(number, f"a time to live of {seconds:g} s", "use more than 0 and less than 30 years")
        return seconds


def _end(token: Token) -> End:
    slot, _, port = token.text.partition(".")
    return End(slot, port)


def end_of(text: str) -> End:
    """``slot.port`` as callers and command lines give it."""
    slot, _, port = text.partition(".")
    if not (_NAME.fullmatch(slot) and _NAME.fullmatch(port)):
        raise BadPlan(f"{text!r} is no port of a slot: write SLOT.PORT, such as producer.red")
    return End(slot, port)


def printed(plan: Plan) -> str:
    """A file with the contents of the plan."""
    words = ["bus", plan.name, *(["static"] if plan.static else []), *([] if plan.announces else ["quiet"])]
    lines = [" ".join(words)]
    lines += [f"role {role.name}{_proofs(role)}" for role in plan.roles]
    lines += [f"{word} {', '.join(found)}" for word in ("see", "reconfigure") if (found := getattr(plan, word))]
    for slot in plan.slots:
        greatest = "many" if slot.greatest == MANY else slot.greatest
        lines += ["", f"slot {slot.name} {slot.kind} {slot.least}..{greatest}{' {' if _inside(slot) else ''}"]
        lines += [f"    {line}" for line in _inside(slot)] + (["}"] if _inside(slot) else [])
    lines += [""] if plan.connections else []
    for found in plan.connections:
        lines.append(f"{found} capacity {found.capacity} ttl {_duration(found.ttl_s)}")
    return "\n".join(lines) + "\n"


def _inside(slot: Slot) -> list[str]:
    lines = [f"{word} {_quoted(text)}" for word in ("program", "about") if (text := getattr(slot, word))]
    lines += [f"enrol {', '.join(slot.enrol)}"] if slot.enrol else []
    for port in slot.ports:
        answer = f" {ARROW} {port.answer}" if port.answer else ""
        lines.append(f"{port.kind} {port.name}{f' : {port.type}' if port.type else ''}{answer}")
    return lines


def _proofs(role: Role) -> str:
    verifier = f" {_quoted(role.verifier)}" if role.verifier or not role.listed else ""
    return f"{verifier} {LISTED}" if role.listed else verifier


def _duration(seconds: float) -> str:
    whole = f"{seconds:f}".rstrip("0").rstrip(".")
    return f"{whole} s" if float(whole) == seconds else f"{seconds * 1_000:.12f}".rstrip("0").rstrip(".") + " ms"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
