"""Checks of delivery: integrity, order of a sender, and what must have arrived in the end."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .events import MESSAGE, STREAM, Trace, breach, counted, in_order


def integrity(trace: Trace) -> Iterator[DataFrame]:
    """What is delivered was sent, by that sender, with that body, in that group, and is delivered once a member."""
    # By message first: if the digests of all deliveries are the sender's, there is nothing to look at one by one.
    odd = "least IS NOT NULL AND (sent IS NULL OR least <> sent OR most <> sent)"
    doubtful = trace.rare(trace.messages.where(odd).select(*MESSAGE, "sent"))
    if doubtful is not None:
        suspects = trace.deliveries.join(doubtful, list(MESSAGE))
        yield breach("integrity", suspects.where("sent IS NULL"), "delivered, but nobody sent it")
        yield breach("integrity", suspects.where("sent <> digest"), "delivered with another body than it was sent with")
    # A stream whose numbers only rise has nothing twice.
    uneven = trace.rare(trace.backward.select(*STREAM).distinct())
    if uneven is not None:
        nth = F.row_number().over(in_order(*STREAM, "number"))
        again = trace.deliveries.join(uneven, list(STREAM), "left_semi").withColumn("nth", nth).where("nth > 1")
        yield breach("integrity", again, "delivered a second time")
    yield counted("integrity", trace.volumes, "deliveries")


def fifo(trace: Trace) -> Iterator[DataFrame]:
    """No member delivers a sender's message after a later one of that sender in the same group."""
    some = trace.promised.select("run", "group").distinct()
    promised = trace.promised.where(F.col("word").isin("fifo", "causal", "total")).select("run", "group").distinct()
    unordered = F.broadcast(some.join(promised, ["run", "group"], "left_anti"))
    late = trace.backward.join(unordered, ["run", "group"], "left_anti")
    said = F.concat(F.lit("delivered after "), F.col("before").cast("string"), F.lit(" of the same sender"))
    yield breach("fifo", late, said)
    yield counted("fifo", trace.volumes.join(unordered, ["run", "group"], "left_anti"), "deliveries")


def reached(trace: Trace) -> Iterator[DataFrame]:
    """What was sent after the last fault, in a calm network, was delivered by every member that was there."""
    late = trace.messages.join(F.broadcast(trace.settled()), "run").where("at > upto")
    due = trace.rare(late.select(*MESSAGE, "place", "at", F.explode("survivors").alias("member")))
    if due is not None:
        yield _missing("reached", trace, due, "never delivered, though sent after all faults")
        yield counted("reached", due)


def agreement(trace: Trace) -> Iterator[DataFrame]:
    """What one survivor delivers, or sends, every survivor delivers, but perhaps its sender. Only for runs that say so:
    in agreed views it is view synchrony that promises this."""
    runs = trace.rare(trace.wanted.where(F.array_contains("checks", "agreement")).select("run"))
    if runs is None:
        return
    deliveries = trace.deliveries.join(F.broadcast(runs), "run", "left_semi")
    settled = F.broadcast(trace.survivors().join(runs, "run", "left_semi"))
    alive = trace.others.where("what = 'held'").select("run", "member").distinct().withColumn("up", F.lit(True))
    had = deliveries.join(settled, ["run", "member"], "left_semi").select(*MESSAGE).distinct()
    sent = trace.messages.where("sent IS NOT NULL").join(F.broadcast(runs), "run", "left_semi")
    sent = sent.join(alive, ["run", "member"], "left").join(had.withColumn("had", F.lit(True)), list(MESSAGE), "left")
    due = sent.where("up OR had").select(*MESSAGE, "place", "at").join(settled, "run")
    yield _missing("agreement", trace, due.where("member <> sender"), "never delivered, though others did")
    yield counted("agreement", due)


def validity(trace: Trace) -> Iterator[DataFrame]:
    """What a member sent to a group without one order, it delivers itself, if it is up in the end."""
    due = _of_survivors(trace, "fifo", "causal", "semantic")
    yield breach("validity", due.where("NOT own"), "never delivered by its own sender")
    yield counted("validity", due)


def reported(trace: Trace) -> Iterator[DataFrame]:
    """What a survivor sent to a totally ordered group it delivers itself, or it is told that it is uncertain; both
    only if it came late."""
    due = _of_survivors(trace, "total")
    told = trace.others.where("what = 'uncertain'").select(*MESSAGE).distinct().withColumn("told", F.lit(True))
    outside = ~F.array_contains("members", F.col("member"))
    left = trace.others.where("what = 'view'").where(outside).groupBy("run", "member", "group")
    went = left.agg(F.max_by("at", "place").alias("went"))
    known = due.join(told, list(MESSAGE), "left").join(went, ["run", "member", "group"], "left")
    silent = known.where("NOT own AND told IS NULL AND at > coalesce(went, -1.0)")
    yield breach("reported", silent, "its sender never learned what became of it")
    yield breach(
        "reported", known.where("own AND told AND NOT late"), "delivered by its sender, who was told it is uncertain"
    )
    yield counted("reported", due)


def _of_survivors(trace: Trace, *words: str) -> DataFrame:
    """What those sent who were up in the end, to groups that were promised one of these."""
    sent = trace.among(trace.messages.where("sent IS NOT NULL"), *words)
    return sent.join(F.broadcast(trace.survivors()), ["run", "member"], "left_semi")


def _missing(check: str, trace: Trace, due: DataFrame, said: str) -> DataFrame:
    """What is due to a member that it never delivered."""
    keys = [*MESSAGE, "member"]
    return breach(check, due.join(trace.deliveries.select(*keys), keys, "left_anti"), said)


CHECKS = (integrity, fifo, reached, agreement, validity, reported)
