"""From text to clauses: the row pattern subset of SQL's MATCH_RECOGNIZE.

::

    [MATCH_RECOGNIZE (]
    [PARTITION BY field, ...]
    ORDER BY time [, field ...]
    [MEASURES [FINAL | RUNNING] expression AS name, ...]
    [ONE ROW PER MATCH | ALL ROWS PER MATCH]
    [AFTER MATCH SKIP {PAST LAST ROW | TO NEXT ROW | TO FIRST variable | TO [LAST] variable}]
    PATTERN (row pattern)
    [WITHIN {INTERVAL '…' unit | n ROWS | INTERVAL '…' unit AND n ROWS}]
    [SUBSET name = (variable, ...), ...]
    [DEFINE variable AS condition, ...]
    [)]

sqlglot's own node for it keeps the row pattern as a text and knows no WITHIN. So its tokens are read here, clause by
clause, and the conditions and expressions between them are given to the grammar of filters, each at its own place in
the text, so that positions in complaints are those of the whole.
"""

from __future__ import annotations

from itertools import permutations
from typing import NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from ..core.errors import BadFilter, BadPattern
from ..core.limits import (
    PATTERN_CHARS_MAX,
    PATTERN_PERMUTED_MAX,
    PATTERN_POSITIONS_MAX,
    PATTERN_ROWS_MAX,
    PATTERN_VARIABLES_MAX,
)
from ..filters.grammar import UNITS_S, parse_tree, parse_value, read_tokens
from ..filters.schema import Schema
from ..filters.tree import Call, Field, Kind, Node, Path, walk
from .tree import Alternation, Clauses, Measure, Repeat, RowPattern, Sequence, SkipTo, Variable, variables

SEE = "docs/patterns.md lists what there is"
DEPTH_MAX = 24
AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX")
NAVIGATION: dict[str, Kind | None] = {
    "PREV": None,
    "NEXT": None,
    "FIRST": None,
    "LAST": None,
    **dict.fromkeys(AGGREGATES, Kind.NUMBER),
    "MATCH_NUMBER": Kind.NUMBER,
    "CLASSIFIER": Kind.TEXT,
}
ENDS = (("ONE", "ROW"), ("ALL", "ROWS"), ("AFTER", "MATCH"), ("PATTERN",), ("ORDER", "BY"), ("MEASURES",))
QUANTIFIERS = {TokenType.STAR: (0, None), TokenType.PLUS: (1, None), TokenType.PLACEHOLDER: (0, 1)}


class _RowSchema(Schema):
    """The fields of a type, also behind a variable's name."""

    def __init__(self, kind: type, names: frozenset[str]) -> None:
        super().__init__(kind)
        self._names = names

    def kind(self, path: Path) -> Kind | None:
        return super().kind(self._own(path))

    def beside(self, path: Path) -> list[str]:
        return super().beside(self._own(path))

    def _own(self, path: Path) -> Path:
        return path[1:] if len(path) > 1 and path[0] in self._names else path


def read_clauses(text: str, type: type | None = None) -> Clauses:
    """Raises ``BadPattern``."""
    if len(text) > PATTERN_CHARS_MAX:
        reason = f"the pattern has {len(text):,} characters, more than {PATTERN_CHARS_MAX:,}"
        raise BadPattern.at(text, PATTERN_CHARS_MAX + 1, reason, "say less")
    try:
        return _Reading(text, read_tokens(text), type).clauses()
    except BadFilter as error:
        raise BadPattern.at(text, error.position, error.reason, error.remedy) from None


class _Reading:
    """A place in the tokens, and what was read so far."""

    def __init__(self, text: str, tokens: list[Token], type: type | None) -> None:
        self.text = text
        self.tokens = tokens
        self.type = type
        self.place = 0
        self.end = len(tokens)
        self.names: frozenset[str] = frozenset()

    # --- tokens -----------------------------------------------------------------------------------------------------

    def refuse(self, reason: str, remedy: str = SEE, at: Token | None = None) -> NoReturn:
        if at is None:
            at = self.tokens[self.place] if self.place < len(self.tokens) else None
        raise BadPattern.at(self.text, len(self.text) + 1 if at is None else at.start + 1, reason, remedy)

    def peek(self, kind: TokenType, ahead: int = 0) -> bool:
        place = self.place + ahead
        return place < self.end and self.tokens[place].token_type is kind

    def at_words(self, words: tuple[str, ...], place: int | None = None) -> bool:
        """Whether these words come next; a name in double quotes is no word."""
        place = self.place if place is None else place
        found = self.tokens[place : min(place + len(words), self.end)]
        return len(found) == len(words) and all(
            token.token_type is not TokenType.IDENTIFIER and token.text.upper() == word
            for token, word in zip(found, words, strict=True)
        )

    def take_words(self, *words: str) -> bool:
        if not self.at_words(words):
            return False
        self.place += len(words)
        return True

    def expect_words(self, *words: str) -> None:
        if not self.take_words(*words):
            self.refuse(f"{' '.join(words)} is missing", f"write {' '.join(words)} here")

    def take(self, kind: TokenType) -> bool:
        if not self.peek(kind):
            return False
        self.place += 1
        return True

    def expect(self, kind: TokenType, sign: str) -> Token:
        if not self.peek(kind):
            self.refuse(f"{sign} is missing", f"write {sign} here")
        self.place += 1
        return self.tokens[self.place - 1]

    def name(self, what: str) -> Token:
        if not (self.peek(TokenType.VAR) or self.peek(TokenType.IDENTIFIER)) or self.tokens[self.place].text == "$":
            self.refuse(f"the name of a {what} is missing", f"write the name of a {what} here")
        self.place += 1
        return self.tokens[self.place - 1]

    def number(self) -> int:
        token = self.expect(TokenType.NUMBER, "a whole number")
        if not token.text.isdigit() or len(token.text) > 9:
            self.refuse(f"{token.text} is no whole number below a billion", "write one like 3", token)
        return int(token.text)

    def slices(self, ends: tuple[tuple[str, ...], ...] = ()) -> list[tuple[int, int]]:
        """The tokens up to one of these words or the end, in pieces between commas."""
        depth, pieces, first = 0, [], self.place
        while self.place < self.end:
            token = self.tokens[self.place]
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            if depth < 0:
                self.refuse("a parenthesis is closed that was not opened", "leave it out")
            if depth == 0 and any(self.at_words(words) for words in ends):
                break
            if depth == 0 and token.token_type is TokenType.COMMA:
                pieces.append((first, self.place))
                first = self.place + 1
            self.place += 1
        return [*pieces, (first, self.place)]

    def words_between(self, first: int, last: int) -> str:
        """The text of some tokens, at its place: what is before it is blank."""
        start, stop = self.tokens[first].start, self.tokens[last - 1].end + 1
        return " " * start + self.text[start:stop]

    # --- clauses ----------------------------------------------------------------------------------------------------

    def clauses(self) -> Clauses:
        self.unwrap()
        partition = self.paths() if self.take_words("PARTITION", "BY") else ()
        if not self.take_words("ORDER", "BY"):
            self.refuse("ORDER BY is missing", "write ORDER BY and the field that holds the time of an event")
        order = self.paths(ordered=True)
        measured = self.slices(ENDS) if self.take_words("MEASURES") else []
        all_rows = self.rows_per_match()
        skip, skip_variable = self.skip_mode()
        self.expect_words("PATTERN")
        opened = self.expect(TokenType.L_PAREN, "(")
        rows = self.alternation(0)
        self.expect(TokenType.R_PAREN, ")")
        names = {each.name for each in variables(rows)}
        if len(names) > PATTERN_VARIABLES_MAX:
            self.refuse(f"{len(names)} variables", f"use {PATTERN_VARIABLES_MAX} or fewer", opened)
        within_s, within_rows = self.within() if self.take_words("WITHIN") else (None, None)
        subsets = self.subsets(names) if self.take_words("SUBSET") else {}
        self.names = frozenset(names | subsets.keys())
        if skip_variable is not None and skip_variable.text not in self.names:
            self.refuse(f"the pattern has no variable {skip_variable.text}", "skip to one that it has", skip_variable)
        define = self.definitions(names) if self.take_words("DEFINE") else {}
        if self.place < self.end:
            self.refuse(f"{self.tokens[self.place].text!r} does not belong here")
        return Clauses(
            partition=partition,
            order=order,
            measures=self.measures(measured),
            all_rows=all_rows,
            skip=skip,
            skip_variable="" if skip_variable is None else skip_variable.text,
            rows=rows,
            within_s=within_s,
            within_rows=within_rows,
            subsets=subsets,
            define=define,
        )

    def unwrap(self) -> None:
        if self.take_words("MATCH_RECOGNIZE"):
            self.expect(TokenType.L_PAREN, "(")
            if self.tokens[-1].token_type is not TokenType.R_PAREN:
                self.refuse("MATCH_RECOGNIZE ( is not closed", "end with )", self.tokens[-1])
            self.end -= 1

    def paths(self, ordered: bool = False) -> tuple[Path, ...]:
        found: list[Path] = []
        while True:
            names = [self.name("field").text]
            while self.take(TokenType.DOT):
                names.append(self.name("field").text)
            found.append(tuple(names))
            if ordered and not self.take_words("ASC") and self.at_words(("DESC",)):
                self.refuse("events come in the order of time, so they are not matched backwards", "leave out DESC")
            if not self.take(TokenType.COMMA):
                return tuple(found)

    def rows_per_match(self) -> bool:
        if self.take_words("ONE"):
            self.expect_words("ROW", "PER", "MATCH")
            return False
        if self.take_words("ALL"):
            self.expect_words("ROWS", "PER", "MATCH")
            return True
        return False

    def skip_mode(self) -> tuple[SkipTo, Token | None]:
        if not self.take_words("AFTER"):
            return SkipTo.PAST_LAST_ROW, None
        self.expect_words("MATCH", "SKIP")
        if self.take_words("PAST"):
            self.expect_words("LAST", "ROW")
            return SkipTo.PAST_LAST_ROW, None
        self.expect_words("TO")
        if self.take_words("NEXT", "ROW"):
            return SkipTo.NEXT_ROW, None
        if self.take_words("FIRST"):
            return SkipTo.FIRST, self.name("variable")
        self.take_words("LAST")
        return SkipTo.LAST, self.name("variable")

    def within(self) -> tuple[float | None, int | None]:
        seconds, rows = None, None
        while True:
            at = self.tokens[self.place] if self.place < self.end else None
            if self.take(TokenType.INTERVAL):
                seconds = self.interval()
            else:
                rows = self.number()
                self.expect_words("ROWS")
                if not 1 <= rows <= PATTERN_ROWS_MAX:
                    self.refuse(f"WITHIN {rows:,} ROWS", f"1 to {PATTERN_ROWS_MAX:,} rows can be waited for", at)
            if not self.take_words("AND"):
                return seconds, rows

    def interval(self) -> float:
        amount = self.tokens[self.place] if self.place < self.end else None
        unit = self.tokens[self.place + 1].text.upper().removesuffix("S") if self.place + 1 < self.end else ""
        try:
            seconds = float(amount.text) * UNITS_S[unit] if amount is not None else 0.0
        except (ValueError, KeyError):
            seconds = 0.0
        if not 0 < seconds < 1e12:
            self.refuse("this is no interval", f"write it like INTERVAL '5' MINUTE; units: {', '.join(UNITS_S)}")
        self.place += 2
        return seconds

    def subsets(self, names: set[str]) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        while True:
            name = self.name("subset")
            if name.text in names or name.text in found:
                self.refuse(f"{name.text} is there already", "choose another name", name)
            self.expect(TokenType.EQ, "=")
            self.expect(TokenType.L_PAREN, "(")
            members = [self.variable_of(names)]
            while self.take(TokenType.COMMA):
                members.append(self.variable_of(names))
            self.expect(TokenType.R_PAREN, ")")
            found[name.text] = frozenset(members)
            if not self.take(TokenType.COMMA):
                return found

    def variable_of(self, names: set[str]) -> str:
        token = self.name("variable")
        if token.text not in names:
            self.refuse(f"PATTERN has no variable {token.text}", f"it has {', '.join(sorted(names))}", token)
        return token.text

    # --- conditions and expressions ---------------------------------------------------------------------------------

    def schema(self) -> Schema | None:
        return None if self.type is None else _RowSchema(self.type, self.names)

    def definitions(self, names: set[str]) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for first, last in self.slices():
            self.place, end = first, self.place
            name = self.variable_of(names)
            if name in found:
                self.refuse(f"{name} is defined twice", "write one condition, with AND", self.tokens[first])
            self.expect_words("AS")
            if self.place >= last:
                self.refuse(f"the condition of {name} is missing", "write one, or leave the variable out: it is true")
            found[name], _ = parse_tree(
                self.words_between(self.place, last), schema=self.schema(), navigation=NAVIGATION
            )
            self.check_calls(found[name], self.tokens[self.place])
            self.place = end
        return found

    def measures(self, pieces: list[tuple[int, int]]) -> tuple[Measure, ...]:
        found: list[Measure] = []
        for first, last in pieces:
            final = self.at_words(("FINAL",), first)
            start = first + (final or self.at_words(("RUNNING",), first))
            if last - start < 3 or not self.at_words(("AS",), last - 2):
                token = self.tokens[min(first, len(self.tokens) - 1)]
                self.refuse("a measure has no name", "write expression AS name", token)
            name = self.tokens[last - 1].text
            if any(name == known.name for known in found):
                self.refuse(f"two measures are called {name}", "give each its own name", self.tokens[last - 1])
            value = parse_value(self.words_between(start, last - 2), schema=self.schema(), navigation=NAVIGATION)
            self.check_calls(value, self.tokens[start])
            found.append(Measure(name, value, final))
        return tuple(found)

    def check_calls(self, tree: Node, at: Token) -> None:
        for node in walk(tree):
            if isinstance(node, Call) and node.name == "NOW":
                self.refuse("NOW() differs from run to run", "compare with the time of another event", at)
            if isinstance(node, Field) and node.via:
                self.check_navigation(node, at)

    def check_navigation(self, field: Field, at: Token) -> None:
        functions = [name for name, _ in field.via]
        if "NEXT" in functions:
            self.refuse("NEXT asks for an event that is still to come", "use PREV in the variable after it", at)
        allowed = {(function,) for function in NAVIGATION} | {("PREV", "FIRST"), ("PREV", "LAST")}
        if tuple(functions) not in allowed:
            self.refuse(f"{' of '.join(functions)} says nothing", "PREV may be of FIRST or LAST, and no other", at)
        if functions[0] not in (*AGGREGATES, "MATCH_NUMBER", "CLASSIFIER") and not field.path:
            self.refuse(f"{functions[0]} is of no field", f"write {functions[0]}(field)", at)
        if any(number > PATTERN_ROWS_MAX for _, number in field.via):
            self.refuse("a row is too far away", f"{PATTERN_ROWS_MAX:,} rows can be remembered", at)

    # --- the row pattern --------------------------------------------------------------------------------------------

    def alternation(self, depth: int) -> RowPattern:
        if depth > DEPTH_MAX:
            self.refuse(f"the row pattern is nested more than {DEPTH_MAX} deep", "nest less")
        choices = [self.sequence(depth)]
        while self.take(TokenType.PIPE):
            choices.append(self.sequence(depth))
        return choices[0] if len(choices) == 1 else Alternation(tuple(choices))

    def sequence(self, depth: int) -> RowPattern:
        parts: list[RowPattern] = []
        while self.place < self.end and not (self.peek(TokenType.PIPE) or self.peek(TokenType.R_PAREN)):
            if self.peek(TokenType.COMMA):
                break
            parts.append(self.repeated(self.primary(depth)))
        if not parts:
            self.refuse("a variable is missing", "write the name of a variable, or a group in parentheses")
        if len(parts) > PATTERN_POSITIONS_MAX:
            self.refuse(f"{len(parts):,} variables in a row", f"use {PATTERN_POSITIONS_MAX:,} or fewer")
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def primary(self, depth: int) -> RowPattern:
        if self.take(TokenType.L_PAREN):
            inside = self.alternation(depth + 1)
            self.expect(TokenType.R_PAREN, ")")
            return inside
        if self.peek(TokenType.L_BRACE) and self.peek(TokenType.DASH, 1):
            self.refuse("{- -} leaves rows out of the answer", "there is no such thing: choose with CLASSIFIER()")
        if self.peek(TokenType.CARET) or self.at_words(("$",)):
            self.refuse("a stream has no first and no last row to hold on to", "leave out ^ and $")
        if self.at_words(("PERMUTE",)) and self.peek(TokenType.L_PAREN, 1):
            return self.permuted(depth)
        token = self.name("variable")
        return Variable(token.text, token.start + 1)

    def permuted(self, depth: int) -> RowPattern:
        at = self.tokens[self.place]
        self.place += 2
        parts = [self.alternation(depth + 1)]
        while self.take(TokenType.COMMA):
            parts.append(self.alternation(depth + 1))
        self.expect(TokenType.R_PAREN, ")")
        if len(parts) > PATTERN_PERMUTED_MAX:
            self.refuse(f"PERMUTE of {len(parts)} parts", f"{PATTERN_PERMUTED_MAX} are the most", at)
        orders = tuple(Sequence(order) for order in permutations(parts))
        return parts[0] if len(parts) == 1 else Alternation(orders)

    def repeated(self, part: RowPattern) -> RowPattern:
        at = self.tokens[self.place].start + 1 if self.place < self.end else 0
        for sign, (least, most) in QUANTIFIERS.items():
            if self.take(sign):
                return Repeat(part, least, most, not self.take(TokenType.PLACEHOLDER), at)
        if not self.peek(TokenType.L_BRACE) or self.peek(TokenType.DASH, 1):
            return part
        opened = self.expect(TokenType.L_BRACE, "{")
        fewest = self.number() if self.peek(TokenType.NUMBER) else 0
        limit: int | None = fewest
        if self.take(TokenType.COMMA):
            limit = self.number() if self.peek(TokenType.NUMBER) else None
        self.expect(TokenType.R_BRACE, "}")
        if limit is not None and (limit < fewest or limit == 0):
            self.refuse(
                f"between {fewest} and {limit} rounds are none", "write {least,most}, most being 1 or more", opened
            )
        return Repeat(part, fewest, limit, not self.take(TokenType.PLACEHOLDER), at)
