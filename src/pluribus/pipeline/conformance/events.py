"""The common part of the checks in this folder: the rows of a trace with the views in which they happened, and the form
of a breach.

Theory of operation
-------------------
A checker in a process walks through a history and remembers. Here every question is put to all rows at once. What was
sent and delivered is shuffled once, by run, member and group, which is the unit that has an order, and gets what a walk
would have remembered: the place of the last view before it (``stay``), what was delivered before it there, and what was
delivered before it of the same sender. That table is kept, and nothing else of its size is ever made in a trace that
keeps its promises.

Comparing deliveries one by one with what was sent, and with what others delivered, would shuffle all of them again, for
every check. Instead they are summed up where they lie, by stay and sender, in *parts*: how many, the first and last
number, and *fingerprints*, sums of 64-bit hashes of what was delivered (``set_*``), of what was delivered after what
(``sequence_*``), and of numbers with bodies (``content_*``). A part whose content is the difference of two running sums
over what its sender sent is just what was sent between the two, but for a chance of 2**-64. Where fingerprints differ,
and only there, the deliveries themselves are compared. So a fingerprint never accuses: it only spares.

All other tables (views, stays, parts) are small. They lie by run, as every question is about one run, and are joined
and grouped without being shuffled. They are *cut off* from what they were made of: plans that hold the whole descent of
every table they mention take longer to be read than to be carried out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql.window import WindowSpec

LOW = 0xFFFFFFFF
MESSAGE = ("run", "group", "sender", "number")
STREAM = ("run", "member", "group", "sender")
STAY = ("run", "member", "group", "stay")
VIEW = ("run", "group", "vnumber", "vleader")
SUMMED = ("set", "sequence")
HALVES = ("low", "high")
NO_STAY = -1
"""The stay of what happened before any view."""
SLICES = 4
"""The large tables have so many times the partitions of a shuffle: few members make uneven ones."""


class Doubt:
    """What a check yields to learn which of some tables, empty if all is well, have any row. It is sent each of them,
    or None: then what would be joined to it to find out more is not even looked at."""

    def __init__(self, *tables: DataFrame) -> None:
        self.tables = tables


Findings = Generator[DataFrame | Doubt, Sequence[DataFrame | None], None]
"""Breaches and counts, and doubts on the way to them."""


class Trace:
    """One trace, made ready. Tables that several checks read are computed once; ``close`` gives them back."""

    def __init__(self, rows: DataFrame, partitions: int) -> None:
        self._kept: list[DataFrame] = []
        self.rows = rows
        self.others = cut(rows.where(~F.col("what").isin("deliver", "send")).repartition("run"))
        self.promised = cut(_promised(self.others))
        self.wanted = cut(_wanted(self.others))
        self.placed = self.keep(_placed(rows, SLICES * partitions))
        self.parts = cut(_parts(self.placed).repartition("run"))
        self.stays = cut(_stays(self.others, self.parts))

    def keep(self, table: DataFrame) -> DataFrame:
        kept = table.persist()
        self._kept.append(kept)
        return kept

    def rare(self, tables: Sequence[DataFrame]) -> list[DataFrame | None]:
        """Of tables that are empty if all is well: those that are not, cut off. One question for all."""
        if not tables:
            return []
        kept = [self.keep(table) for table in tables]
        marked = (table.select(F.lit(number).alias("number")) for number, table in enumerate(kept))
        there = {row["number"] for row in reduce(DataFrame.unionAll, marked).distinct().collect()}
        return [cut(table) if number in there else None for number, table in enumerate(kept)]

    def close(self) -> None:
        for table in self._kept:
            table.unpersist()

    @cached_property
    def deliveries(self) -> DataFrame:
        """Every delivery, with the view that its member was in and whether it was a member of it (``inside``). What
        came late is no part of this view; the check of safe order puts it where it belongs."""
        views = self.stays.select(*STAY, "vnumber", "vleader", F.col("inside").alias("in"), "era")
        known = self.delivered.join(F.broadcast(views), list(STAY), "left")
        inside = F.coalesce("in", F.lit(False)) & ~F.col("late")
        return known.withColumns({"inside": inside, "era": F.coalesce("era", F.lit(0))}).drop("in")

    @property
    def delivered(self) -> DataFrame:
        """The same rows, in the order of the file."""
        return self.placed.where("NOT sent").drop("sent")

    @cached_property
    def sends(self) -> DataFrame:
        """Every message that was sent, with running sums over what its sender sent to the group."""
        return self.keep(_sends(self.rows))

    @cached_property
    def sent(self) -> DataFrame:
        """How many messages each sent to each group."""
        sent = self.sends.groupBy("run", "group", "member", "sender").agg(F.count("*").alias("messages"))
        return cut(sent.repartition("run"))

    @cached_property
    def unlike(self) -> DataFrame:
        """Parts that are not exactly what was sent between their first number and their last."""
        return cut(_unlike(self.parts, self.sends).repartition("run"))

    @cached_property
    def volumes(self) -> DataFrame:
        return self.parts.groupBy("run", "group").agg(F.sum("deliveries").alias("deliveries"))

    @cached_property
    def backward(self) -> DataFrame:
        """Deliveries that come after one with the same or a higher number of the same sender."""
        return self.delivered.where("number <= before").select(*STREAM, "place", "number", "before")

    def settled(self) -> DataFrame:
        """By run: when everything was to be in order, and who was there (``upto``, ``survivors``)."""
        first = Window.partitionBy("run").orderBy("place")
        found = self.others.where("what = 'settled'").withColumn("nth", F.row_number().over(first)).where("nth = 1")
        return found.select("run", F.col("at").alias("upto"), F.col("members").alias("survivors"))

    def survivors(self) -> DataFrame:
        return self.settled().select("run", F.explode("survivors").alias("member")).distinct()

    def among(self, table: DataFrame, *words: str) -> DataFrame:
        """The rows of groups that were promised one of these, of a large table."""
        return table.join(F.broadcast(self._groups(*words)), ["run", "group"], "left_semi")

    def few_among(self, table: DataFrame, *words: str) -> DataFrame:
        """The same of a small table, which lies by run."""
        return table.join(self._groups(*words), ["run", "group"], "left_semi")

    def _groups(self, *words: str) -> DataFrame:
        return self.promised.where(F.col("word").isin(*words)).select("run", "group").distinct()


def cut(table: DataFrame) -> DataFrame:
    """A table computed now, which has forgotten how. Spark drops it when nobody knows it any more."""
    return table.localCheckpoint(eager=True)


def _placed(rows: DataFrame, partitions: int) -> DataFrame:
    """What was sent and delivered, with what came before it at its member."""
    is_view, is_delivery = F.col("what") == "view", F.col("what") == "deliver"
    columns = ("place", "sender", "number", "digest", "parent_sender", "parent_number", "orphan", "late")
    happened = rows.where(F.col("what").isin("view", "deliver", "send")).select(
        *("run", "member", "group", *columns),
        is_view.alias("shown"),
        (~is_delivery).alias("sent"),
        F.when(is_view, 0).when(is_delivery & ~F.col("late"), F.xxhash64("sender", "number")).alias("name"),
    )
    divided = happened.repartition(partitions, "run", "member", "group")
    so_far = in_order("run", "member", "group").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    earlier = so_far.rowsBetween(Window.unboundedPreceding, -1)
    known = divided.withColumns(
        {
            "stay": F.coalesce(F.max(F.when(F.col("shown"), F.col("place"))).over(so_far), F.lit(NO_STAY)),
            "after": F.last("name", ignorenulls=True).over(earlier),
        }
    )
    of_sender = in_order(*STREAM).rowsBetween(Window.unboundedPreceding, -1)
    before = F.last(F.when(~F.col("sent"), F.col("number")), ignorenulls=True).over(of_sender)
    kept = ("run", "member", "group", "stay", *columns, "sent", "name", "after")
    return known.where("NOT shown").select(*kept, before.alias("before"))


def _parts(placed: DataFrame) -> DataFrame:
    """Deliveries summed up by stay and sender."""
    delivered = placed.where("NOT sent")
    in_view = F.when(~F.col("late"), F.lit(1))
    return delivered.groupBy(*STAY, "sender").agg(
        F.count("*").alias("deliveries"),
        F.count(in_view).alias("count"),
        F.min("number").alias("least"),
        F.max("number").alias("most"),
        F.count(F.when(F.col("number") <= F.col("before"), 1)).alias("backward"),
        *_sums("content", _content()),
        *_sums("set", F.col("name")),
        *_sums("sequence", F.when(~F.col("late"), F.xxhash64("after", "name"))),
    )


def _content() -> Column:
    return F.xxhash64("number", "digest", "parent_sender", "parent_number")


def _sums(name: str, hashed: Column) -> Iterable[Column]:
    """Aggregates over rows: the same for the same rows, in any order."""
    return (
        F.coalesce(F.sum(hashed.bitwiseAND(F.lit(LOW))), F.lit(0)).alias(f"{name}_low"),
        F.coalesce(F.sum(F.shiftrightunsigned(hashed, 32)), F.lit(0)).alias(f"{name}_high"),
    )


def fingerprint(name: str, *values: str) -> Iterable[Column]:
    return _sums(name, F.xxhash64(*values))


def _sends(rows: DataFrame) -> DataFrame:
    columns = ("member", "place", "at", "digest", "parent_sender", "parent_number")
    sends = rows.where("what = 'send'").select(*MESSAGE, *columns)
    so_far = Window.partitionBy("run", "group", "sender").orderBy("number")
    so_far = so_far.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    low, high = _content().bitwiseAND(F.lit(LOW)), F.shiftrightunsigned(_content(), 32)
    sums = {"nth": F.count("*").over(so_far), "low": F.sum(low).over(so_far), "high": F.sum(high).over(so_far)}
    return sends.repartition("run", "group", "sender").withColumns({**sums, "own_low": low, "own_high": high})


def _unlike(parts: DataFrame, sends: DataFrame) -> DataFrame:
    ends = sends.select(*MESSAGE, "nth", "low", "high", "own_low", "own_high")
    upto = ends.select(*(F.col(name).alias(name if name in MESSAGE else f"upto_{name}") for name in ends.columns))
    marks = parts.select(*STREAM, "stay", "least", "most", "deliveries", "backward", "content_low", "content_high")
    found = marks.withColumn("number", F.col("least")).join(ends, list(MESSAGE), "left").drop("number")
    found = found.withColumn("number", F.col("most")).join(upto, list(MESSAGE), "left").drop("number")
    same = [F.col("upto_nth") - F.col("nth") + 1 == F.col("deliveries"), F.col("backward") == 0]
    same += [F.col(f"upto_{h}") - F.col(h) + F.col(f"own_{h}") == F.col(f"content_{h}") for h in HALVES]
    return found.where(~F.coalesce(reduce(Column.__and__, same), F.lit(False))).select(*STREAM, "stay")


def _stays(others: DataFrame, parts: DataFrame) -> DataFrame:
    """Every member's time in a view of a group: what it delivered there, summed up, and where it went."""
    so_far = in_order("run", "member", "group")
    inside = F.array_contains("members", F.col("member"))
    name = F.struct(F.col("sender").alias("vnumber"), F.col("number").alias("vleader"))
    shown = others.where("what = 'view'").withColumns({"inside": inside, "view": name})
    shown = shown.withColumns(
        {
            "stay": F.col("place"),
            "era": F.count(F.when(~F.col("inside"), 1)).over(so_far),
            "next": F.lead(F.when(F.col("inside"), F.col("view"))).over(so_far),
        }
    )
    sums = ["count", *(f"{kind}_{half}" for kind in SUMMED for half in HALVES)]
    summed = parts.groupBy(*STAY).agg(
        *(F.sum(column).alias(column) for column in sums),
        F.collect_set(F.when(F.col("count") > 0, F.col("sender"))).alias("senders"),
    )
    return shown.join(summed, list(STAY), "left").select(
        *("run", "member", "group", "stay", "place", "at", "members", "next", "inside", "era"),
        F.col("view.vnumber").alias("vnumber"),
        F.col("view.vleader").alias("vleader"),
        *(F.coalesce(column, F.lit(0)).alias(column) for column in sums),
        F.coalesce("senders", F.array().cast("array<bigint>")).alias("senders"),
    )


def _promised(others: DataFrame) -> DataFrame:
    """By group: each word of what its members were promised."""
    words = F.explode(F.split("promises", " ")).alias("word")
    return others.where("what = 'view'").select("run", "group", words).where("word <> ''").distinct()


def _wanted(others: DataFrame) -> DataFrame:
    """By run: the checks that it was promised, if it says so."""
    return others.where("what = 'checks'").select("run", F.split("promises", " ").alias("checks"))


def differing(kind: str) -> Column:
    """Whether grouped stays do not all have one fingerprint."""
    differ = [F.min(column) != F.max(column) for column in ("count", f"{kind}_low", f"{kind}_high")]
    return differ[0] | differ[1] | differ[2]


def breach(check: str, table: DataFrame, said: str | Column) -> DataFrame:
    """Rows as a report tells them: which event, and what is wrong with it."""
    sentence = F.lit(said) if isinstance(said, str) else said
    event = {"place": "bigint", "at": "double", "member": "bigint", "group": "string"}
    message = {"sender": "bigint", "number": "bigint"}
    columns = [
        (F.col(name) if name in table.columns else F.lit(None)).cast(kind).alias(name)
        for name, kind in {**event, **message}.items()
    ]
    nothing = F.lit(None).cast("bigint").alias("checks")
    return table.select("run", F.lit(check).alias("check"), nothing, *columns, sentence.cast("string").alias("said"))


def counted(check: str, table: DataFrame, checks: str | Column = "1") -> DataFrame:
    """How many checks were made, in the shape of breaches: some rows a run, to be added up."""
    amount = F.expr(checks) if isinstance(checks, str) else checks
    empty = {"place": "bigint", "at": "double", "member": "bigint", "group": "string"}
    empty |= {"sender": "bigint", "number": "bigint", "said": "string"}
    columns = [F.lit(None).cast(kind).alias(name) for name, kind in empty.items()]
    return table.select("run", F.lit(check).alias("check"), amount.cast("bigint").alias("checks"), *columns)


def text_of(*columns: str) -> Column:
    """``(sender, number)``, as a report shows an identity."""
    return F.concat(F.lit("("), F.concat_ws(", ", *(F.col(column).cast("string") for column in columns)), F.lit(")"))


def in_order(*columns: str) -> WindowSpec:
    return Window.partitionBy(*columns).orderBy("place")
