"""Checks of agreed views: the members of a view agree, in everything that they pass through together."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from .events import MESSAGE, STAY, VIEW, Doubt, Findings, Trace, breach, counted, differing, in_order, text_of

PASSAGE = ("run", "group", "vnumber", "vleader", "next")


def view_agreement(trace: Trace) -> Findings:
    """Every view of the bus and of a group is entered once a member, in the order of numbers; everybody who is shown a
    view of a group is shown the same members."""
    bus, shown = trace.others.where("what = 'bus'"), trace.others.where("what = 'view'")
    outside = bus.where(~F.array_contains("members", F.col("member")))
    yield breach("view_agreement", outside, "entered a view of the bus without being in it")
    view = F.struct("sender", "number")
    none = F.struct(F.lit(0).cast("bigint").alias("sender"), F.lit(0).cast("bigint").alias("number"))
    for table, of in ((bus, ("run", "member")), (shown, ("run", "member", "group"))):
        before = F.coalesce(F.lag(view).over(in_order(*of)), none)
        late = table.withColumn("before", before).where(view <= F.col("before"))
        yield breach("view_agreement", late, F.concat(F.lit("shown after view "), text_of("before.sender")))
    same = shown.where(F.size("members") > 0).groupBy(*MESSAGE)
    least, most = F.min("members"), F.max("members")
    unlike = same.agg(F.min("place").alias("place"), (least != most).alias("unlike")).where("unlike")
    yield breach("view_agreement", unlike, "different members were shown in this view")
    yield counted("view_agreement", trace.others.where("what IN ('bus', 'view')"))


def view_synchrony(trace: Trace) -> Findings:
    """Members that pass from a view of a group to the next together delivered the same messages in it."""
    passing = trace.stays.where("inside AND next IS NOT NULL")
    passed = passing.groupBy(*PASSAGE)
    together = passed.agg(F.count("*").alias("of"), differing("set").alias("differ"))
    yield counted("view_synchrony", together, "of - 1")
    (doubtful,) = yield Doubt(passing.join(together.where("differ"), list(PASSAGE)).select(*STAY, "next", "of"))
    if doubtful is None:
        return
    delivered = trace.deliveries.where("inside").join(F.broadcast(doubtful), list(STAY))
    by = delivered.groupBy(*PASSAGE, "sender", "number", "of")
    counted_by = by.agg(
        F.count_distinct("member").alias("by"), F.min_by(F.struct("place", "member"), "place").alias("e")
    )
    partial = counted_by.where("by < of").select("*", "e.*")
    said = F.concat(F.lit("delivered by "), F.col("by"), F.lit(" of "), F.col("of"), F.lit(" that left view "))
    yield breach("view_synchrony", partial, F.concat(said, text_of("vnumber"), F.lit(" together")))


def sent_by_members(trace: Trace) -> Findings:
    """What is delivered in a view of a group was sent by a member of it."""
    strangers = F.array_except("senders", "members")
    stays = trace.stays.where("inside")
    yield counted("sent_by_members", stays, "count")
    (doubtful,) = yield Doubt(stays.where(F.size(strangers) > 0).select(*STAY, strangers.alias("strangers")))
    if doubtful is None:
        return
    delivered = trace.deliveries.where("inside").join(F.broadcast(doubtful), list(STAY))
    alien = delivered.where(F.array_contains("strangers", F.col("sender")))
    yield breach("sent_by_members", alien, F.concat(F.lit("its sender is not in view "), text_of("vnumber")))


def safe(trace: Trace) -> Findings:
    """Uniform: of two members of a group's view, whether they survived it or not, one delivered a beginning of what the
    other did."""
    stays = trace.few_among(trace.stays.where("inside"), "safe")
    yield counted("safe", stays, "count")
    differing_views = stays.groupBy(*VIEW).agg(differing("sequence").alias("differ")).where("differ").select(*VIEW)
    some_late = trace.few_among(trace.parts.where("deliveries > count"), "safe").select("run", "group").distinct()
    doubtful, has_late = yield Doubt(differing_views, some_late)
    late = None
    if has_late is not None:
        (late,) = yield Doubt(_late(trace, has_late))
        if late is not None:
            more = late.select(*VIEW)
            doubtful = (more if doubtful is None else doubtful.union(more)).distinct()
    if doubtful is None:
        return
    columns = (*VIEW, "member", "stay", "place", "late", "sender", "number")
    delivered = trace.deliveries.where("inside").select(*columns)
    if late is not None:
        delivered = delivered.unionByName(late.select(*columns))
    delivered = delivered.join(F.broadcast(doubtful), list(VIEW), "left_semi")
    in_stay = Window.partitionBy(*STAY).orderBy("late", "place")
    delivered = delivered.withColumn("rank", F.row_number().over(in_stay))
    message = F.struct("sender", "number")
    ranks = delivered.groupBy(*VIEW, "rank").agg(F.min(message).alias("least"), F.max(message).alias("most"))
    split = ranks.where("least <> most").groupBy(*VIEW).agg(F.min("rank").alias("rank"))
    first = delivered.join(split, [*VIEW, "rank"])
    said = F.concat(F.lit("delivered where others delivered another, in view "), text_of("vnumber"))
    yield breach("safe", first, said)


def _late(trace: Trace, groups: DataFrame) -> DataFrame:
    """What came late in these groups, as part of the stay it belongs to: its member's last one in a primary."""
    late = trace.delivered.where("late").join(F.broadcast(groups), ["run", "group"], "left_semi")
    chain = F.last(F.when(F.col("what") == "bus", (F.col("lineage") != 0) | (F.col("epoch") != 0)), ignorenulls=True)
    shown = trace.others.where("what IN ('bus', 'view')").withColumn("primary", chain.over(in_order("run", "member")))
    in_group = in_order("run", "member", "group")
    shown = shown.where("what = 'view'").withColumn("stay", F.col("place"))
    inside = F.array_contains("members", F.col("member"))
    name = F.struct("stay", F.col("sender").alias("vnumber"), F.col("number").alias("vleader"))
    last = F.last(F.when(F.col("primary") & inside, name), ignorenulls=True).over(in_group)
    known = shown.withColumn("last", last).select(*STAY, "last").where("last IS NOT NULL")
    return late.join(F.broadcast(known), list(STAY)).drop("stay").select("*", "last.*").drop("last")


def one_primary(trace: Trace) -> Findings:
    """Primaries of one lineage form a chain: one view an epoch, each shares a majority with the one before."""
    primary = trace.others.where("what = 'bus' AND (lineage <> 0 OR epoch <> 0)")
    whole = F.struct("sender", "number", "members")
    links = primary.groupBy("run", "lineage", "epoch").agg(
        F.min_by(F.struct("place", "at", "member", "members", "sender", "number"), "place").alias("first"),
        (F.min(whole) != F.max(whole)).alias("two"),
        F.count("*").alias("seen"),
    )
    yield breach("one_primary", links.where("two").select("run", "first.*"), "two primaries of one epoch")
    before = F.lag("first.members").over(Window.partitionBy("run", "lineage").orderBy("epoch"))
    chain = links.withColumn("before", before)
    shared, size = F.size(F.array_intersect("before", "first.members")), F.size("before")
    heirless = ~F.array_contains("first.members", F.get("before", F.lit(0)))
    lost = chain.where((2 * shared < size) | ((2 * shared == size) & heirless))
    yield breach("one_primary", lost.select("run", "first.*"), "a primary without a majority of the one before it")
    yield counted("one_primary", chain, "seen + if(before IS NULL, 0, 1)")


def excluded(trace: Trace) -> Findings:
    """A member that enters a primary is told that it was excluded if another member of it comes from a later primary of
    the same chain than it does itself, and only then."""
    bus = trace.others.where("what = 'bus'").withColumn("view", F.struct("sender", "number"))
    entered = bus.where("lineage <> 0 OR epoch <> 0").select(
        "run",
        F.col("member").alias("who"),
        F.col("view").alias("old"),
        F.col("place").alias("then"),
        F.struct("lineage", "epoch").alias("chain"),
    )
    now = bus.where("lineage <> 0").withColumn("who", F.explode("members"))
    columns = ("run", "place", "at", "member", "sender", "number", "lineage", "epoch")
    known = now.join(entered, ["run", "who"]).where("old < view").groupBy(*columns, "who")
    last = known.agg(F.max_by("chain", "then").alias("chain"))
    same = F.col("chain.lineage") == F.col("lineage")
    mine = F.max(F.when((F.col("who") == F.col("member")) & same, F.col("chain")))
    latest = F.max(F.when(same, F.col("chain")))
    judged = last.groupBy(*columns).agg(mine.alias("mine"), latest.alias("latest")).where("mine IS NOT NULL")
    keys = ["run", "member", "sender", "number"]
    told = trace.others.where("what = 'excluded'").select(*keys).distinct().withColumn("told", F.lit(True))
    judged = judged.join(told, keys, "left").withColumn("missed", F.col("latest") > F.col("mine"))
    yield breach("excluded", judged.where("missed AND told IS NULL"), "missed a primary and was not told")
    yield breach("excluded", judged.where("NOT missed AND told"), "was told that it missed a primary and had not")
    yield counted("excluded", judged)


def converged(trace: Trace) -> Findings:
    """After the last fault, all members that are up are in one view, and it holds nobody else."""
    settled = trace.settled()
    up = settled.select("run", "upto", F.sort_array("survivors").alias("up"), F.explode("survivors").alias("member"))
    bus = trace.others.where("what = 'bus'").join(settled, "run").where("at <= upto")
    last = bus.groupBy("run", "member").agg(F.max_by("members", "place").alias("members"))
    ended = up.join(last, ["run", "member"], "left")
    apart = ended.where(F.col("members").isNull() | (F.sort_array("members") != F.col("up")))
    yield breach("converged", apart.withColumn("at", F.col("upto")), "ended in another view than those who are up")
    yield counted("converged", ended, F.size("up"))


CHECKS = (view_agreement, view_synchrony, sent_by_members, safe, one_primary, excluded, converged)
