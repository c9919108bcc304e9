"""Checks of the orders between messages of several senders: causal, semantic, total."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ...core.errors import TooLarge
from .events import MESSAGE, STAY, VIEW, Trace, breach, counted, fingerprint, in_order, text_of

CAUSAL_MEMBERS_MAX = 128
"""A causal check carries a number for each member of the view in every row."""


def causal(trace: Trace) -> Iterator[DataFrame]:
    """No member delivers a message before one that its sender had delivered, in the same view of the group, when it
    sent it.

    Each row gets the vector of the last numbers that its member had delivered in this view; a delivery is held against
    the vector of its send.
    """
    views = trace.among(trace.stays, "causal").select(*VIEW, "members").dropDuplicates(list(VIEW))
    width = views.agg(F.max(F.size("members"))).first()[0] or 0  # type: ignore[index]
    if width > CAUSAL_MEMBERS_MAX:
        raise TooLarge(f"causal order of {width} members is over {CAUSAL_MEMBERS_MAX}: leave out the check 'causal'")
    seats = views.select(*VIEW, F.posexplode("members").alias("seat", "sender"))
    rows = trace.among(trace.placed, "causal").where("vnumber IS NOT NULL")
    rows = rows.join(seats, [*VIEW, "sender"], "left")
    earlier = in_order(*STAY).rowsBetween(Window.unboundedPreceding, -1)
    is_delivery = F.col("what") == "deliver"
    last = {
        f"had{seat}": F.last(F.when(is_delivery & (F.col("seat") == seat), F.col("number")), True).over(earlier)
        for seat in range(width)
    }
    rows = rows.withColumns(last) if last else rows
    needs = [F.col(f"had{seat}").alias(f"need{seat}") for seat in range(width)]
    sends = rows.where("what = 'send'").select(*MESSAGE, "vnumber", "vleader", *needs)
    held = rows.where("what = 'deliver'").join(sends, [*MESSAGE, "vnumber", "vleader"])
    asked = [F.col(f"need{seat}").isNotNull() & (F.coalesce("seat", F.lit(-1)) != seat) for seat in range(width)]
    lacks = [asked[seat] & (F.coalesce(f"had{seat}", F.lit(-1)) < F.col(f"need{seat}")) for seat in range(width)]
    lacking = F.coalesce(*(F.when(lacks[seat], F.col(f"need{seat}")) for seat in range(width)), F.lit(None))
    early = held.where(reduce(or_, lacks, F.lit(False))).withColumn("lacking", lacking.cast("string"))
    said = F.concat(F.lit("delivered before number "), F.col("lacking"), F.lit(" of another, which its sender had"))
    yield breach("causal", early, said)
    yield counted("causal", held, sum((F.when(a, 1).otherwise(0) for a in asked), F.lit(0)))


def semantic(trace: Trace) -> Iterator[DataFrame]:
    """No member delivers a message before the one that it answers, unless it is marked as an orphan; and it is marked
    only if that one was not delivered."""
    delivered = trace.among(trace.deliveries, "semantic")
    answers = delivered.where("parent_sender IS NOT NULL")
    yield from _wrong_parents(trace, delivered)
    yield from _after_their_orphans(trace, delivered)
    keys = ["run", "member", "group", "era"]
    mine = delivered.groupBy(*keys, "sender", "number").agg(F.min("place").alias("had_at"))
    mine = mine.withColumnsRenamed({"sender": "parent_sender", "number": "parent_number"})
    judged = answers.join(mine, [*keys, "parent_sender", "parent_number"], "left")
    judged = judged.withColumn("had", F.coalesce(F.col("had_at") <= F.col("place"), F.lit(False)))
    odd = trace.rare(judged.where("orphan = had"))  # an orphan after its parent, or an answer without it
    if odd is not None:
        said = F.concat(F.lit("an orphan, after its parent "), text_of("parent_sender", "parent_number"))
        yield breach("semantic", odd.where("orphan"), said)
        yield _before_their_parents(delivered, odd.where("NOT orphan"))
    yield counted("semantic", answers)


def _wrong_parents(trace: Trace, delivered: DataFrame) -> Iterator[DataFrame]:
    """What is delivered as an answer to something that it does not answer."""
    parent = F.struct("parent_sender", "parent_number")
    of_message = trace.among(trace.placed, "semantic").groupBy(*MESSAGE)
    summed = of_message.agg(
        F.max(F.when(F.col("what") == "send", parent)).alias("meant"),
        F.min(F.xxhash64(parent)).alias("least"),
        F.max(F.xxhash64(parent)).alias("most"),
    )
    mixed = trace.rare(summed.where("least <> most AND meant IS NOT NULL").select(*MESSAGE, "meant"))
    if mixed is not None:
        other = delivered.join(mixed, list(MESSAGE)).where(~parent.eqNullSafe(F.col("meant")))
        yield breach("semantic", other, "delivered as an answer to what it is no answer to")


def _before_their_parents(delivered: DataFrame, alone: DataFrame) -> DataFrame:
    """Somebody who was not there when the parent was delivered gets the answer alone, and that is right."""
    keys = ["run", "group", "parent_sender", "parent_number"]
    seen = delivered.where("vnumber IS NOT NULL").select(
        "run",
        "group",
        F.col("sender").alias("parent_sender"),
        F.col("number").alias("parent_number"),
        F.struct("vnumber", "vleader").alias("seen"),
    )
    seen = seen.join(alone.select(*keys).distinct(), keys, "left_semi")
    alone = alone.join(seen.groupBy(*keys).agg(F.collect_set("seen").alias("seen")), keys, "left")
    here = F.col("vnumber").isNotNull() & F.array_contains("seen", F.struct("vnumber", "vleader"))
    early = alone.where(F.col("seen").isNull() | here)
    return breach("semantic", early, F.concat(F.lit("delivered before its parent "), text_of(*keys[2:])))


def _after_their_orphans(trace: Trace, delivered: DataFrame) -> Iterator[DataFrame]:
    """What is delivered in a view after an answer to it was marked there as an orphan."""
    view = F.struct("vnumber", "vleader", "stay")
    keys = ["run", "member", "group", "here", "sender", "number"]
    orphans = delivered.where("orphan").select(
        "run",
        "member",
        "group",
        view.alias("here"),
        F.col("parent_sender").alias("sender"),
        F.col("parent_number").alias("number"),
        F.col("place").alias("marked"),
    )
    marked = trace.rare(orphans.groupBy(*keys).agg(F.min("marked").alias("marked")))
    if marked is not None:
        late = delivered.withColumn("here", view).join(marked, keys).where("place > marked")
        yield breach("semantic", late, "delivered after an answer to it, marked as an orphan")


def total(trace: Trace) -> Iterator[DataFrame]:
    """Members that leave a view of the bus together delivered what both delivered, of all groups, in the same order."""
    delivered, stays = _bus_stays(trace)
    passage = ["run", "view", "next"]
    first = Window.partitionBy(*passage).orderBy("place")
    several = F.count("*").over(Window.partitionBy(*passage))
    passed = stays.where("next IS NOT NULL").withColumns({"nth": F.row_number().over(first), "of": several})
    passed = passed.where("of > 1")
    columns = ("count", "low", "high")
    differ = [F.min(column) != F.max(column) for column in columns]
    doubtful = passed.groupBy(*passage).agg(reduce(or_, differ).alias("differ")).where("differ").select(*passage)
    suspects = passed.join(doubtful, passage, "left_semi").select(*passage, "member", "bus_stay", "nth")
    rare = trace.rare(suspects)
    if rare is not None:
        rows = delivered.join(rare, ["run", "member", "bus_stay"])
        theirs = rows.where("nth = 1").select(*passage, "group", "sender", "number", F.col("place").alias("theirs"))
        shared = rows.where("nth > 1").join(theirs, [*passage, "group", "sender", "number"])
        before = F.lag("theirs").over(Window.partitionBy(*passage, "member").orderBy("place"))
        swapped = shared.withColumn("before", before).where("theirs < before")
        said = F.concat(F.lit("delivered in another order than others, in view "), text_of("view.sender"))
        yield breach("total", swapped, said)
    lengths = passed.groupBy("run", *passage[1:]).agg(
        (F.max(F.when(F.col("nth") == 1, F.col("count"))) * (F.count("*") - 1)).alias("made")
    )
    yield counted("total", lengths, "made")


def _bus_stays(trace: Trace) -> tuple[DataFrame, DataFrame]:
    """Deliveries of totally ordered groups with their rank in a view of the bus; and those views, member by member,
    each summed up."""
    bus = trace.others.where("what = 'bus'").withColumn("view", F.struct("sender", "number", "members"))
    numbered = bus.withColumns(
        {
            "bus_stay": F.row_number().over(in_order("run", "member")),
            "next": F.lead("view").over(in_order("run", "member")),
        }
    )
    entered = bus.select(
        "run",
        "member",
        "place",
        F.lit(True).alias("enters"),
        F.lit("").alias("group"),
        F.lit(0).cast("bigint").alias("sender"),
        F.lit(0).cast("bigint").alias("number"),
        F.lit(0.0).alias("at"),
    )
    columns = ("run", "member", "place", "enters", "group", "sender", "number", "at")
    ordered = trace.among(trace.deliveries, "total").withColumn("enters", F.lit(False)).select(*columns)
    so_far = in_order("run", "member")
    both = ordered.unionByName(entered).withColumns(
        {
            "bus_stay": F.count(F.when(F.col("enters"), 1)).over(so_far),
            "count": F.count(F.when(~F.col("enters"), 1)).over(so_far),
        }
    )
    before = F.last(F.when(F.col("enters"), F.col("count")), ignorenulls=True).over(so_far)
    both = both.withColumn("rank", F.col("count") - F.coalesce(before, F.lit(0)))
    delivered = both.where("NOT enters AND bus_stay > 0").drop("count")
    low, high = fingerprint("sum", "rank", "group", "sender", "number")
    summed = delivered.groupBy("run", "member", "bus_stay").agg(
        F.count("*").alias("count"), low.alias("low"), high.alias("high")
    )
    stays = numbered.join(summed, ["run", "member", "bus_stay"], "left").fillna(0, ["count", "low", "high"])
    return delivered, stays


CHECKS = (causal, semantic, total)
