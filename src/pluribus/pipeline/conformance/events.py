"""What the checks of this folder share: the rows of a trace with the views that they happened in, and how a breach is
told.

Theory of operation
-------------------
A checker in a process walks through a history and remembers. Here every question is put to all rows at once. Rows are
partitioned by run and member, which is the unit that has an order, and sorted by place; a running window tells each row
which view of its group its member was in (``stay``, counted from 1, and the view's own name), and its rank among what
was delivered in that stay. Everything else is a join or an aggregate over that table.

Comparing what members delivered in a view message by message would shuffle every delivery once more. Instead each stay
is summed up in a *fingerprint*: sums of 64-bit hashes of what was delivered (``set_*``) and of what was delivered at
which rank (``sequence_*``). Stays with equal fingerprints delivered the same, but for a chance of 2**-64; where they
differ, and only there, the deliveries themselves are compared. So a fingerprint never accuses: it only spares.
"""

from __future__ import annotations

from collections.abc import Iterable
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


class Trace:
    """One trace, made ready. Tables that several checks read are computed once; ``close`` gives them back."""

    def __init__(self, rows: DataFrame) -> None:
        self._kept: list[DataFrame] = []
        # One shuffle serves all windows below: a partition holds all of a member.
        self.rows = rows.repartition("run", "member")
        happened = self.rows.where(F.col("what").isin("view", "deliver", "send"))
        self.placed = self.keep(_placed(happened))
        self.deliveries = self.placed.where("what = 'deliver'")
        self.sends = self.placed.where("what = 'send'")
        self.messages = self.keep(_messages(self.placed))
        self.volumes = self.keep(self.deliveries.groupBy("run", "group").agg(F.count("*").alias("deliveries")))
        self.backward = self.keep(_backward(self.deliveries))
        self.others = self.keep(rows.where(~F.col("what").isin("deliver", "send")))
        self.promised = self.keep(_promised(self.others))
        self.wanted = self.keep(_wanted(self.others))
        self.stays = self.keep(_stays(self.others, self.deliveries))

    def keep(self, table: DataFrame) -> DataFrame:
        kept = table.persist()
        self._kept.append(kept)
        return kept

    def rare(self, table: DataFrame) -> DataFrame | None:
        """A table that is empty if all is well: kept if it is not, and None if it is. What would be joined to it to
        find out more is then not even looked at."""
        kept = self.keep(table)
        return None if kept.isEmpty() else kept

    def close(self) -> None:
        for table in self._kept:
            table.unpersist()

    def settled(self) -> DataFrame:
        """By run: when everything was to be in order, and who was there (``upto``, ``survivors``)."""
        first = Window.partitionBy("run").orderBy("place")
        found = self.others.where("what = 'settled'").withColumn("nth", F.row_number().over(first)).where("nth = 1")
        return found.select("run", F.col("at").alias("upto"), F.col("members").alias("survivors"))

    def survivors(self) -> DataFrame:
        return self.settled().select("run", F.explode("survivors").alias("member")).distinct()

    def among(self, table: DataFrame, *words: str) -> DataFrame:
        """The rows of groups that were promised one of these."""
        groups = self.promised.where(F.col("word").isin(*words)).select("run", "group").distinct()
        return table.join(groups, ["run", "group"], "left_semi")


def _placed(happened: DataFrame) -> DataFrame:
    """Every row with the stay of its member in a view of its group."""
    so_far = Window.partitionBy("run", "member", "group").orderBy("place")
    is_view = F.col("what") == "view"
    inside = F.array_contains("members", F.col("member"))
    delivered = F.count(F.when((F.col("what") == "deliver") & ~F.col("late"), 1)).over(so_far)
    counted = happened.withColumns(
        {
            "stay": F.count(F.when(is_view, 1)).over(so_far),
            "era": F.count(F.when(is_view & ~inside, 1)).over(so_far),
            "view": F.last(
                F.when(is_view, F.struct(F.col("sender").alias("a"), F.col("number").alias("b"), inside.alias("in"))),
                ignorenulls=True,
            ).over(so_far),
            "delivered": delivered,
        }
    )
    before = F.last(F.when(is_view, F.col("delivered")), ignorenulls=True).over(so_far)
    ranked = counted.withColumn("rank", F.col("delivered") - F.coalesce(before, F.lit(0)))
    return ranked.where(~is_view).select(
        *("run", "member", "group", "place", "at", "what", "sender", "number", "digest"),
        *("parent_sender", "parent_number", "orphan", "late", "stay", "era", "rank"),
        F.col("view.a").alias("vnumber"),
        F.col("view.b").alias("vleader"),
        # What came late is no part of this view; the check of safe order puts it where it belongs.
        (F.coalesce(F.col("view.in"), F.lit(False)) & ~F.col("late")).alias("inside"),
    )


def _messages(placed: DataFrame) -> DataFrame:
    """Every message once: by whom and when it was sent, its digest there, the digests of its deliveries, and whether
    its sender delivered it (``own``), and did so late."""
    sent, delivered = F.col("what") == "send", F.col("what") == "deliver"
    return placed.groupBy(*MESSAGE).agg(
        F.max(F.when(sent, F.col("digest"))).alias("sent"),
        F.min(F.when(delivered, F.col("digest"))).alias("least"),
        F.max(F.when(delivered, F.col("digest"))).alias("most"),
        F.max(F.when(sent, F.col("member"))).alias("member"),
        F.min(F.when(sent, F.col("place"))).alias("place"),
        F.min(F.when(sent, F.col("at"))).alias("at"),
        F.coalesce(F.max(delivered & (F.col("member") == F.col("sender"))), F.lit(False)).alias("own"),
        F.coalesce(F.max(delivered & F.col("late") & (F.col("member") == F.col("sender"))), F.lit(False)).alias("late"),
    )


def _backward(deliveries: DataFrame) -> DataFrame:
    """Deliveries that come after one with the same or a higher number of the same sender."""
    before = F.lag("number").over(in_order(*STREAM))
    columns = ("place", "at", "number", "before")
    return deliveries.withColumn("before", before).where("number <= before").select(*STREAM, *columns)


def _promised(others: DataFrame) -> DataFrame:
    """By group: each word of what its members were promised."""
    words = F.explode(F.split("promises", " ")).alias("word")
    return others.where("what = 'view'").select("run", "group", words).where("word <> ''").distinct()


def _wanted(others: DataFrame) -> DataFrame:
    """By run: the checks that it was promised, if it says so."""
    return others.where("what = 'checks'").select("run", F.split("promises", " ").alias("checks"))


def fingerprint(name: str, *values: str) -> Iterable[Column]:
    """Aggregates over rows: the same for the same rows, in any order."""
    hashed = F.xxhash64(*values)
    return (
        F.sum(hashed.bitwiseAND(F.lit(LOW))).alias(f"{name}_low"),
        F.sum(F.shiftrightunsigned(hashed, 32)).alias(f"{name}_high"),
    )


def _stays(others: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Every member's time in a view of a group that it was in: what it delivered, summed up, and where it went."""
    in_order = Window.partitionBy("run", "member", "group").orderBy("place")
    name = F.struct(F.col("sender").alias("vnumber"), F.col("number").alias("vleader"))
    shown = others.where("what = 'view'").withColumns(
        {
            "stay": F.row_number().over(in_order),
            "inside": F.array_contains("members", F.col("member")),
            "view": name,
        }
    )
    following = F.lead(F.when(F.col("inside"), F.col("view"))).over(in_order)
    shown = shown.withColumn("next", following).where("inside")
    delivered = deliveries.where("inside").groupBy(*STAY)
    summed = delivered.agg(
        F.count("*").alias("count"),
        *fingerprint("set", "sender", "number"),
        *fingerprint("sequence", "rank", "sender", "number"),
        F.collect_set("sender").alias("senders"),
    )
    joined = shown.join(summed, list(STAY), "left")
    return joined.select(
        *("run", "member", "group", "stay", "place", "at", "members", "next"),
        F.col("view.vnumber").alias("vnumber"),
        F.col("view.vleader").alias("vleader"),
        F.coalesce("count", F.lit(0)).alias("count"),
        *(F.coalesce(f"{kind}_{half}", F.lit(0)).alias(f"{kind}_{half}") for kind in SUMMED for half in HALVES),
        F.coalesce("senders", F.array().cast("array<bigint>")).alias("senders"),
    )


SUMMED = ("set", "sequence")
HALVES = ("low", "high")


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
    """How many checks were made of each run, in the shape of breaches."""
    amount = F.expr(checks) if isinstance(checks, str) else checks
    made = table.groupBy("run").agg(F.coalesce(F.sum(amount), F.lit(0)).cast("bigint").alias("checks"))
    empty = {"place": "bigint", "at": "double", "member": "bigint", "group": "string"}
    empty |= {"sender": "bigint", "number": "bigint", "said": "string"}
    columns = [F.lit(None).cast(kind).alias(name) for name, kind in empty.items()]
    return made.select("run", F.lit(check).alias("check"), "checks", *columns)


def text_of(*columns: str) -> Column:
    """``(sender, number)``, as a report shows an identity."""
    return F.concat(F.lit("("), F.concat_ws(", ", *(F.col(column).cast("string") for column in columns)), F.lit(")"))


def in_order(*columns: str) -> WindowSpec:
    return Window.partitionBy(*columns).orderBy("place")
