"""Checks of the orders between messages of several senders: causal, semantic, total."""

from __future__ import annotations

from functools import reduce
from operator import add, or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ...core.errors import TooLarge
from .events import MESSAGE, STAY, Doubt, Findings, Trace, breach, counted, cut, fingerprint, in_order, text_of

CAUSAL_MEMBERS_MAX = 128
"""A causal check carries a number for each member of the view in every row."""


def causal(trace: Trace) -> Findings:
    """No member delivers a message before one that its sender had delivered, in the same view of the group, when it
    sent it.

    Each row gets the vector of the last numbers that its member had delivered in this view; a delivery is held against
    the vector of its send.
    """
    views = trace.few_among(trace.stays, "causal").select(*STAY, "vnumber", "vleader", "members")
    width = views.agg(F.max(F.size("members"))).first()[0] or 0  # type: ignore[index]
    if width > CAUSAL_MEMBERS_MAX:
        raise TooLarge(f"causal order of {width} members is over {CAUSAL_MEMBERS_MAX}: leave out the check 'causal'")
    if not width:
        return
    rows = _with_vectors(trace, views, width)
    judged = cut(_least(rows, width).groupBy("run").agg(F.sum("made").alias("made"), F.sum("early").alias("early")))
    (broken,) = yield Doubt(judged.where("early > 0").select("run"))
    if broken is not None:
        yield _early(rows.join(F.broadcast(broken), "run", "left_semi"), width)
    yield counted("causal", judged, "made")


def _with_vectors(trace: Trace, views: DataFrame, width: int) -> DataFrame:
    """What was sent and delivered in views, with the place of its sender in the view (``seat``), and the numbers that
    its member had delivered last of each seat."""
    columns = ("place", "sender", "number", "sent")
    rows = trace.among(trace.placed, "causal").select(*STAY, *columns).join(F.broadcast(views), list(STAY))
    seat = F.array_position("members", F.col("sender")) - 1
    rows = rows.select(*STAY, *columns, "vnumber", "vleader", seat.alias("seat"))
    earlier = in_order(*STAY).rowsBetween(Window.unboundedPreceding, -1)
    had = {
        f"had{seat}": F.last(F.when(~F.col("sent") & (F.col("seat") == seat), F.col("number")), True).over(earlier)
        for seat in range(width)
    }
    return rows.withColumns(had)


def _least(rows: DataFrame, width: int) -> DataFrame:
    """By message and view: how many numbers were asked for, and whether one was lacking anywhere: if the least that any
    member had was enough, all had enough."""
    delivered = F.when(~F.col("sent"), F.lit(1))
    whole = rows.groupBy(*MESSAGE, "vnumber", "vleader", "seat").agg(
        F.count(delivered).alias("deliveries"),
        *(F.max(F.when(F.col("sent"), F.col(f"had{seat}"))).alias(f"need{seat}") for seat in range(width)),
        *(
            F.min(F.when(delivered == 1, F.coalesce(f"had{seat}", F.lit(-1)))).alias(f"had{seat}")
            for seat in range(width)
        ),
    )
    asked, lacks = _asked(width)
    made = reduce(add, (F.when(each, F.col("deliveries")).otherwise(0) for each in asked))
    return whole.select("run", made.alias("made"), F.when(reduce(or_, lacks), 1).otherwise(0).alias("early"))


def _early(rows: DataFrame, width: int) -> DataFrame:
    """The deliveries that came too early."""
    needs = [F.col(f"had{seat}").alias(f"need{seat}") for seat in range(width)]
    sends = rows.where("sent").select(*MESSAGE, "vnumber", "vleader", *needs)
    held = rows.where("NOT sent").join(sends, [*MESSAGE, "vnumber", "vleader"])
    _, lacks = _asked(width)
    lacking = F.coalesce(*(F.when(lacks[seat], F.col(f"need{seat}")) for seat in range(width)))
    said = F.concat(F.lit("delivered before number "), lacking, F.lit(" of another, which its sender had"))
    return breach("causal", held.where(reduce(or_, lacks)), said)


def _asked(width: int) -> tuple[list[Column], list[Column]]:
    """By seat: whether its number is asked for, and whether it is lacking."""
    asked = [F.col(f"need{seat}").isNotNull() & (F.col("seat") != seat) for seat in range(width)]
    lacks = [asked[seat] & (F.coalesce(f"had{seat}", F.lit(-1)) < F.col(f"need{seat}")) for seat in range(width)]
    return asked, lacks


def semantic(trace: Trace) -> Findings:
    """No member delivers a message before the one that it answers, unless it is marked as an orphan; and it is marked
    only if that one was not delivered."""
    delivered = trace.among(trace.deliveries, "semantic")
    judged = _judged(delivered)
    summed = judged.groupBy("run").agg(
        F.count("*").alias("made"),
        F.count(F.when(F.col("orphan"), 1)).alias("orphans"),
        F.count(F.when(F.col("orphan") == F.col("had"), 1)).alias("odd"),
    )
    told = cut(summed)
    unlike = trace.few_among(trace.unlike, "semantic").select("run").distinct()
    odd, orphans, mixed = yield Doubt(
        told.where("odd > 0").select("run"), told.where("orphans > 0").select("run"), unlike
    )
    if odd is not None:  # an orphan after its parent, or an answer without it
        wrong = judged.join(F.broadcast(odd), "run", "left_semi").where("orphan = had")
        said = F.concat(F.lit("an orphan, after its parent "), text_of("parent_sender", "parent_number"))
        yield breach("semantic", wrong.where("orphan"), said)
        yield _before_their_parents(delivered, wrong.where("NOT orphan"))
    if orphans is not None:
        yield _after_their_orphans(delivered.join(F.broadcast(orphans), "run", "left_semi"))
    if mixed is not None:
        yield _wrong_parents(trace, delivered.join(F.broadcast(mixed), "run", "left_semi"))
    yield counted("semantic", told, "made")


def _judged(delivered: DataFrame) -> DataFrame:
    """Answers, with whether their member had delivered what they answer (``had``)."""
    keys = ["run", "member", "group", "era"]
    mine = delivered.groupBy(*keys, "sender", "number").agg(F.min("place").alias("had_at"))
    mine = mine.withColumnsRenamed({"sender": "parent_sender", "number": "parent_number"})
    answers = delivered.where("parent_sender IS NOT NULL")
    judged = answers.join(mine, [*keys, "parent_sender", "parent_number"], "left")
    return judged.withColumn("had", F.coalesce(F.col("had_at") <= F.col("place"), F.lit(False)))


def _wrong_parents(trace: Trace, delivered: DataFrame) -> DataFrame:
    """What is delivered as an answer to something that it does not answer."""
    parent = F.struct("parent_sender", "parent_number")
    meant = trace.sends.groupBy(*MESSAGE).agg(F.max(parent).alias("meant"))
    other = delivered.join(meant, list(MESSAGE)).where(~parent.eqNullSafe(F.col("meant")))
    return breach("semantic", other, "delivered as an answer to what it is no answer to")


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


def _after_their_orphans(delivered: DataFrame) -> DataFrame:
    """What is delivered in a view after an answer to it was marked there as an orphan."""
    keys = [*STAY, "sender", "number"]
    orphans = delivered.where("orphan").select(
        *STAY,
        F.col("parent_sender").alias("sender"),
        F.col("parent_number").alias("number"),
        F.col("place").alias("marked"),
    )
    marked = orphans.groupBy(*keys).agg(F.min("marked").alias("marked"))
    late = delivered.join(marked, keys).where("place > marked")
    return breach("semantic", late, "delivered after an answer to it, marked as an orphan")


def total(trace: Trace) -> Findings:
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
    (rare,) = yield Doubt(suspects)
    if rare is not None:
        rows = delivered.join(F.broadcast(rare), ["run", "member", "bus_stay"])
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
    """Deliveries of totally ordered groups with the member's stay in a view of the bus; and those stays, each summed
    up."""
    so_far = in_order("run", "member")
    bus = trace.others.where("what = 'bus'").withColumn("view", F.struct("sender", "number", "members"))
    entered = bus.withColumns({"bus_stay": F.col("place"), "next": F.lead("view").over(so_far)})
    columns = ("run", "member", "place", "group", "sender", "number")
    ordered = trace.among(trace.delivered, "total")
    ordered = ordered.select(*columns, F.xxhash64("group", "sender", "number").alias("name"))
    marks = bus.select(*columns, F.lit(0).cast("bigint").alias("name"), F.lit(True).alias("enters"))
    both = ordered.withColumn("enters", F.lit(False)).unionByName(marks)
    both = both.withColumns(
        {
            "bus_stay": F.max(F.when(F.col("enters"), F.col("place"))).over(so_far),
            "after": F.lag("name").over(so_far),
        }
    )
    delivered = both.where("NOT enters AND bus_stay IS NOT NULL")
    low, high = fingerprint("sum", "after", "name")
    summed = delivered.groupBy("run", "member", "bus_stay").agg(
        F.count("*").alias("count"), low.alias("low"), high.alias("high")
    )
    stays = entered.join(summed, ["run", "member", "bus_stay"], "left").fillna(0, ["count", "low", "high"])
    return delivered, stays


CHECKS = (causal, semantic, total)
