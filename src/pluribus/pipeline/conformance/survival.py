"""Check of what outlives a primary: safe messages, on the way from one primary to the next."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from .events import STAY, VIEW, Doubt, Findings, Trace, breach, counted, in_order
from .views import _late

MESSAGE_OF_STAY = (*STAY, "sender", "number")


def survives(trace: Trace) -> Findings:
    """What anybody delivered in a safe group of a primary is delivered by everybody who was in that view of the group
    and is in the group when the next link of the chain forms; and they come there with the same.

    The stay that delivered most stands for everybody; where its fingerprint is that of all who went on, nothing is
    looked at.
    """
    stays = trace.few_among(trace.stays.where("inside"), "safe")
    summed = F.struct("member", "stay", "count", "set_low", "set_high")
    most = stays.groupBy(*VIEW).agg(F.max_by(summed, F.struct("count", -F.col("place"))).alias("most"))
    came = trace.keep(_came(trace).join(most, list(VIEW)))
    yield counted("survives", came, "most.count")
    own = came.join(stays.select(*STAY, "count", "set_low", "set_high"), list(STAY))
    alike = [F.col(name) == F.col(f"most.{name}") for name in ("count", "set_low", "set_high")]
    some_late = trace.few_among(trace.parts.where("deliveries > count"), "safe").select("run", "group").distinct()
    differing = own.where(~(alike[0] & alike[1] & alike[2])).select(*VIEW)
    doubtful, has_late = yield Doubt(differing, some_late)
    late = None
    if has_late is not None:
        (late,) = yield Doubt(_late(trace, has_late))
        if late is not None:
            more = late.select(*VIEW)
            doubtful = more if doubtful is None else doubtful.union(more)
    if doubtful is None:
        return
    columns = (*VIEW, "member", "stay", "sender", "number", "place")
    delivered = trace.deliveries.where("inside").select(*columns)
    delivered = delivered.join(F.broadcast(doubtful.distinct()), list(VIEW), "left_semi")
    theirs = delivered.join(most, list(VIEW)).where("member = most.member AND stay = most.stay")
    theirs = theirs.select(*VIEW, "sender", "number").distinct()
    if late is not None:
        delivered = delivered.unionByName(late.select(*columns))
    mine = delivered.groupBy(*MESSAGE_OF_STAY).agg(F.min("place").alias("place"))
    missing = came.join(theirs, list(VIEW)).join(mine, list(MESSAGE_OF_STAY), "left_anti")
    yield breach("survives", missing, "its member came to the next primary without it, and another had delivered it")
    together = (*VIEW, "after")
    of = came.groupBy(*together).agg(F.count_distinct("member").alias("of"))
    went = came.select(*STAY, "vnumber", "vleader", "after")
    had = mine.join(went, list(STAY)).groupBy(*together, "sender", "number")
    by = had.agg(F.count_distinct("member").alias("by"), F.min_by(F.struct("place", "member"), "place").alias("e"))
    odd = by.join(of, list(together)).where("by < of").select("*", "e.*")
    said = F.concat(F.lit("delivered by "), F.col("by"), F.lit(" of "), F.col("of"))
    yield breach("survives", odd, F.concat(said, F.lit(" that came from its primary to the next together")))


def _came(trace: Trace) -> DataFrame:
    """The stays in the last view of a group that a primary had, of members who were in the group all the way to the
    next primary of the chain: ``after`` is its epoch."""
    bus = F.when(F.col("what") == "bus", F.struct("lineage", "epoch"))
    chain = F.last(bus, ignorenulls=True).over(in_order("run", "member"))
    inside = F.array_contains("members", F.col("member"))
    era = F.count(F.when(~inside, 1)).over(in_order("run", "member", "group"))
    shown = trace.others.where("what IN ('bus', 'view')").withColumn("chain", chain).where("what = 'view'")
    views = shown.withColumns({"stay": F.col("place"), "inside": inside, "era": era})
    primary = trace.few_among(views.where("inside AND (chain.lineage <> 0 OR chain.epoch <> 0)"), "safe")
    following = F.lead("chain").over(in_order("run", "member", "group", "era"))
    primary = primary.drop("lineage", "epoch").withColumn("came", following).select("*", "chain.*")
    links = trace.others.where("what = 'bus' AND lineage <> 0").select("run", "lineage", "epoch").distinct()
    links = links.withColumn("after", F.lead("epoch").over(Window.partitionBy("run", "lineage").orderBy("epoch")))
    went_on = primary.join(links, ["run", "lineage", "epoch"]).where("came.lineage = lineage AND came.epoch = after")
    names = (F.col("sender").alias("vnumber"), F.col("number").alias("vleader"))
    return went_on.select(*STAY, *names, "place", "at", "after")


CHECKS = (survives,)
