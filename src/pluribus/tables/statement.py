"""What a SELECT reads: the queues and topics that it names, their columns, their properties.

Two readers share the work. SQLite itself says which columns a statement reads, because it prepares it against empty
tables (``Database.reads``): so names mean here what they mean when the statement runs. sqlglot gives the statement as a
tree, which tells the tables, whose property a name is, and what can be pushed down (``pushing.py``).

*Properties.* A name that is no column of a table, and nothing else in the statement, is a property: SQLite complains of
it, and it is added as a column. With several tables it has to be said whose it is.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.tokenizer_core import TokenType

from ..core.errors import BadInput
from ..filters.tree import Node, Or
from .database import SCHEMAS, Database, Name, complaint
from .pushing import pushed

PROPERTIES_MAX = 200
"""Properties that one statement names."""
TABLES_MAX = 32
STATEMENT_CHARS_MAX = 60_000
_MISSING = re.compile(r"no such column: (.*)", re.DOTALL)


class TableRead:
    """One table of a statement: what is to be copied of it."""

    def __init__(self, name: Name, columns: Sequence[str]) -> None:
        self.name = name
        self.base = list(columns)
        """Columns that every row has."""
        self.key = ["topic", "offset"] if name[0] == "topics" else self.base[:1]
        """What tells its rows apart."""
        self.properties: dict[str, None] = {}
        self.used: set[str] = set()
        """Columns and properties that the statement reads."""
        self.star = False
        """All columns are read, and all properties, whatever their names."""
        self.condition: Node | None = None
        """What is true of every row that matters; None: of any."""

    @property
    def columns(self) -> list[str]:
        return [*self.base, *self.properties]

    def column(self, name: str) -> str | None:
        """The column that a name means, as it is spelt in the table."""
        lower = name.lower()
        return next((one for one in self.columns if one == name), None) or next(
            (one for one in self.columns if one.lower() == lower), None
        )

    def add(self, name: str) -> bool:
        """Whether there was no such property before."""
        if self.column(name) is not None:
            return False
        self.properties[name] = None
        return True

    def __repr__(self) -> str:
        return f"<table {'.'.join(self.name)}, {self.used}, {self.condition}>"


class Statement:
    """``schema_of`` gives the schema of a table without one; ``columns_of`` what rows of a schema's tables have, the
    key first. ``BadInput`` for what is no single SELECT over them."""

    def __init__(self, text: str, default: Mapping[str, str], columns_of: Mapping[str, Sequence[str]]) -> None:
        if len(text) > STATEMENT_CHARS_MAX:
            raise BadInput(f"a statement of {len(text):,} characters: write at most {STATEMENT_CHARS_MAX:,}")
        self.text, self._tree = _read(text)
        self._default = default
        self.scopes = _scopes(self._tree)
        self.tables: dict[Name, TableRead] = {}
        for scope in self.scopes:
            for table in _tables(scope).values():
                name = self._name(table)
                if name not in self.tables:
                    if len(self.tables) >= TABLES_MAX:
                        raise BadInput(f"more than {TABLES_MAX} tables: ask for fewer at a time")
                    self.tables[name] = TableRead(name, columns_of[name[0]])
        self._add_at_once()

    def _name(self, table: exp.Table) -> Name:
        if table.catalog:
            raise BadInput(f"{table.sql()} has too many names: write a table, or queues., memory. or topics. before it")
        schema = table.db.lower()
        if schema and schema not in SCHEMAS:
            raise BadInput(f"there is no schema {table.db!r}: there are {', '.join(SCHEMAS)}")
        return schema or self._default.get(table.name, SCHEMAS[0]), table.name

    def _add_at_once(self) -> None:
        """Properties of which only one table can be meant, so that no other table's are taken for them."""
        for scope in self.scopes:
            tables = _tables(scope)
            select = scope.expression
            if len(scope.sources) != 1 or len(tables) != 1 or not isinstance(select, exp.Select):
                continue
            ((alias, table),) = tables.items()
            wanted = self.tables[self._name(table)]
            aliases = {one.alias.lower() for one in select.expressions if one.alias}
            for column in _own_columns(scope):
                if (column.table.lower() == alias.lower() if column.table else column.name.lower() not in aliases) and (
                    not isinstance(column.this, exp.Star)
                ):
                    self._add(wanted, column.name)

    def _add(self, wanted: TableRead, name: str) -> bool:
        if len(wanted.properties) >= PROPERTIES_MAX:
            raise BadInput(f"more than {PROPERTIES_MAX} properties: ask for fewer at a time")
        return wanted.add(name)

    def prepare(self, database: Database) -> None:
        """Make empty tables, and find out which columns are read; then what can be pushed down."""
        for _ in range(PROPERTIES_MAX):
            for wanted in self.tables.values():
                database.create(wanted.name, wanted.columns, wanted.key)
            try:
                reads = database.reads(self.text)
            except sqlite3.Error as error:
                missing = _MISSING.fullmatch(str(error))
                if missing is None or not self._found(missing[1]):
                    raise complaint(error) from None
                continue
            break
        else:
            raise BadInput(f"more than {PROPERTIES_MAX} properties: ask for fewer at a time")
        for schema, read, column in reads:
            for name, wanted in self.tables.items():
                if (schema, read.lower()) == (name[0], name[1].lower()) and column:
                    wanted.used.add(wanted.column(column) or column)
        for scope in self.scopes:
            for table in _starred(scope):
                self.tables[self._name(table)].star = True
        self._push_down()

    def _found(self, missing: str) -> bool:
        """Add the property that SQLite misses; whether there is anything new to try."""
        added = False
        for scope in self.scopes:
            tables = _tables(scope)
            for column in _own_columns(scope):
                written = f"{column.table}.{column.name}" if column.table else column.name
                if written != missing or isinstance(column.this, exp.Star):
                    continue
                if column.table:
                    table = next((one for alias, one in tables.items() if alias.lower() == column.table.lower()), None)
                    table = table or self._outside(scope, column.table)
                elif len(tables) == 1:
                    (table,) = tables.values()
                elif tables:
                    names = " or ".join(f"{alias}.{column.name}" for alias in tables)
                    raise BadInput(f"{column.name} is a property of one of several tables: write {names}")
                else:
                    table = None
                if table is not None:
                    added |= self._add(self.tables[self._name(table)], column.name)
        return added

    def _outside(self, scope: Scope, alias: str) -> exp.Table | None:
        """A table of a SELECT around this one."""
        outer = scope.parent
        while outer is not None:
            for name, table in _tables(outer).items():
                if name.lower() == alias.lower():
                    return table
            outer = outer.parent
        return None

    def _push_down(self) -> None:
        conditions: dict[Name, list[Node | None]] = {name: [] for name in self.tables}
        for scope in self.scopes:
            select = scope.expression
            sources = _tables(scope)
            for alias, table in sources.items():
                wanted = self.tables[self._name(table)]
                found: Node | None = None
                if isinstance(select, exp.Select):
                    single = len(scope.sources) == 1

                    def resolve(
                        column: exp.Column, alias: str = alias, wanted: TableRead = wanted, single: bool = single
                    ) -> str | None:
                        if column.args.get("db") or column.args.get("catalog"):
                            return None
                        if column.table.lower() != alias.lower() if column.table else not single:
                            return None
                        return wanted.column(column.name)

                    found = pushed(select, resolve)
                conditions[wanted.name].append(found)
        for name, found_all in conditions.items():
            known = [one for one in found_all if one is not None]
            if known and len(known) == len(found_all) == self._references(name):
                self.tables[name].condition = Or(tuple(known)) if len(known) > 1 else known[0]

    def _references(self, name: Name) -> int:
        """How often the table is named anywhere, also where no scope was found."""
        return sum(1 for table in self._tree.find_all(exp.Table) if _looks_like(table, name))


def _looks_like(table: exp.Table, name: Name) -> bool:
    return table.name.lower() == name[1].lower() and table.db.lower() in ("", name[0])


def _read(text: str) -> tuple[str, exp.Query]:
    """The statement with names in ` instead of ": SQLite takes a name in " that it does not know for a text."""
    try:
        tokens = sqlglot.tokenize(text, read="sqlite")
        trees = [one for one in sqlglot.parse(text, read="sqlite") if one is not None]
    except (SqlglotError, RecursionError) as error:
        told = " ".join(str(error).split())[:300]
        raise BadInput(f"the statement cannot be read: {told}: write one SELECT of SQLite") from None
    if len(trees) != 1:
        raise BadInput(f"{len(trees)} statements: ask one SELECT at a time")
    (tree,) = trees
    if not isinstance(tree, exp.Query):
        raise BadInput("only a SELECT can be asked for: queues are read, and changed by send and receive")
    pieces, at = [], 0
    for token in tokens:
        if token.token_type is TokenType.IDENTIFIER and text[token.start] == '"':
            pieces += [text[at : token.start], "`", token.text.replace("`", "``"), "`"]
            at = token.end + 1
    return "".join([*pieces, text[at:]]).strip().rstrip(";"), tree


def _scopes(tree: exp.Query) -> list[Scope]:
    try:
        return list(traverse_scope(tree))
    except (SqlglotError, RecursionError, KeyError) as error:
        raise BadInput(f"the statement cannot be read: {error}: write it in another way") from None


def _tables(scope: Scope) -> dict[str, exp.Table]:
    """By alias: those of the SELECT itself that are no names of WITH, and no functions."""
    return {
        alias: source
        for alias, source in scope.sources.items()
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and alias in scope.selected_sources
    }


def _own_columns(scope: Scope) -> Iterable[exp.Column]:
    """Columns that are written in the SELECT itself, and not in one inside of it."""
    for column in scope.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is scope.expression or not isinstance(scope.expression, exp.Select):
            yield column


def _starred(scope: Scope) -> list[exp.Table]:
    select = scope.expression
    if not isinstance(select, exp.Select):
        return []
    tables = _tables(scope)
    found: list[exp.Table] = []
    for one in select.expressions:
        if isinstance(one, exp.Star):
            return list(tables.values())
        if isinstance(one, exp.Column) and isinstance(one.this, exp.Star):
            found += [table for alias, table in tables.items() if alias.lower() == one.table.lower()]
    return found
