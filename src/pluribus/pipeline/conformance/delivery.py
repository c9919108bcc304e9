"""Checks of delivery: integrity, order of a sender, and what must have arrived in the end."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .events import MESSAGE, STREAM, Doubt, Findings, Trace, breach, counted, in_order

SENT = ("run", "group", "sender")


def integrity(trace: Trace) -> Findings:
    """What is delivered was sent, by that sender, with that body, in that group, and is delivered once a member."""
    # A stream whose numbers only rise has nothing twice.
    uneven = trace.parts.where("backward > 0").select(*STREAM).distinct()
    odd, twice = yield Doubt(trace.unlike.select(*STREAM).distinct(), uneven)
    if odd is not None:
        sent = trace.sends.groupBy(*MESSAGE).agg(F.max("digest").alias("meant"))
        suspects = trace.delivered.join(F.broadcast(odd), list(STREAM), "left_semi").join(sent, list(MESSAGE), "left")
        yield breach("integrity", suspects.where("meant IS NULL"), "delivered, but nobody sent it")
        other = suspects.where("meant <> digest")
        yield breach("integrity", other, "delivered with another body than it was sent with")
    if twice is not None:
        nth = F.row_number().over(in_order(*STREAM, "number"))
        again = (
            trace.delivered.join(F.broadcast(twice), list(STREAM), "left_semi").withColumn("nth", nth).where("nth > 1")
        )
        yield breach("integrity", again, "delivered a second time")
    yield counted("integrity", trace.parts, "deliveries")


def fifo(trace: Trace) -> Findings:
    """No member delivers a sender's message after a later one of that sender in the same group."""
    some = trace.promised.select("run", "group").distinct()
    promised = trace.promised.where(F.col("word").isin("fifo", "causal", "total")).select("run", "group").distinct()
    unordered = some.join(promised, ["run", "group"], "left_anti")
    ordered = trace.parts.join(unordered, ["run", "group"], "left_anti")
    yield counted("fifo", ordered, "deliveries")
    (uneven,) = yield Doubt(ordered.where("backward > 0").select("run", "group").distinct())
    if uneven is not None:
        late = trace.backward.join(F.broadcast(uneven), ["run", "group"], "left_semi")
        said = F.concat(F.lit("delivered after "), F.col("before").cast("string"), F.lit(" of the same sender"))
        yield breach("fifo", late, said)


def reached(trace: Trace) -> Findings:
    """What was sent after the last fault, in a calm network, was delivered by every member that was there."""
    late = trace.sends.join(F.broadcast(trace.settled()), "run").where("at > upto")
    (due,) = yield Doubt(late.select(*MESSAGE, "place", "at", F.explode("survivors").alias("member")))
    if due is not None:
        yield _missing("reached", trace, due, "never delivered, though sent after all faults")
        yield counted("reached", due)


def agreement(trace: Trace) -> Findings:
    """What one survivor delivers, or sends, every survivor delivers, but perhaps its sender. Only for runs that say so:
    in agreed views it is view synchrony that promises this."""
    (runs,) = yield Doubt(trace.wanted.where(F.array_contains("checks", "agreement")).select("run"))
    if runs is None:
        return
    deliveries = trace.delivered.join(F.broadcast(runs), "run", "left_semi")
    settled = F.broadcast(trace.survivors().join(runs, "run", "left_semi"))
    alive = trace.others.where("what = 'held'").select("run", "member").distinct().withColumn("up", F.lit(True))
    had = deliveries.join(settled, ["run", "member"], "left_semi").select(*MESSAGE).distinct()
    sent = trace.sends.join(F.broadcast(runs), "run", "left_semi")
    sent = sent.join(alive, ["run", "member"], "left").join(had.withColumn("had", F.lit(True)), list(MESSAGE), "left")
    due = sent.where("up OR had").select(*MESSAGE, "place", "at").join(settled, "run")
    yield _missing("agreement", trace, due.where("member <> sender"), "never delivered, though others did")
    yield counted("agreement", due)


def validity(trace: Trace) -> Findings:
    """What a member sent to a group without one order, it delivers itself, if it is up in the end."""
    words = ("fifo", "causal", "semantic")
    due = _of_survivors(trace, trace.few_among(trace.sent, *words))
    yield counted("validity", due, "messages")
    (shy,) = yield Doubt(_not_their_own(trace, due))
    if shy is not None:
        sends = _of_survivors(trace, trace.among(trace.sends, *words))
        sends = sends.join(F.broadcast(shy), list(SENT), "left_semi")
        yield breach("validity", _with_own(trace, sends).where("own IS NULL"), "never delivered by its own sender")


def reported(trace: Trace) -> Findings:
    """What a survivor sent to a totally ordered group it delivers itself, or it is told that it is uncertain; both
    only if it came late."""
    due = _of_survivors(trace, trace.few_among(trace.sent, "total"))
    yield counted("reported", due, "messages")
    told = trace.others.where("what = 'uncertain'").select(*MESSAGE).distinct()
    shy, uncertain = yield Doubt(_not_their_own(trace, due), told)
    sends = _of_survivors(trace, trace.among(trace.sends, "total"))
    if shy is not None:
        outside = ~F.array_contains("members", F.col("member"))
        left = trace.others.where("what = 'view'").where(outside).groupBy("run", "member", "group")
        went = left.agg(F.max_by("at", "place").alias("went"))
        lost = _with_own(trace, sends.join(F.broadcast(shy), list(SENT), "left_semi")).where("own IS NULL")
        lost = lost.join(told, list(MESSAGE), "left_anti").join(went, ["run", "member", "group"], "left")
        silent = lost.where("at > coalesce(went, -1.0)")
        yield breach("reported", silent, "its sender never learned what became of it")
    if uncertain is not None:
        had = _with_own(trace, sends.join(F.broadcast(uncertain), list(MESSAGE), "left_semi")).where("own AND NOT late")
        yield breach("reported", had, "delivered by its sender, who was told it is uncertain")


def _of_survivors(trace: Trace, sent: DataFrame) -> DataFrame:
    """What those sent who were up in the end."""
    return sent.join(F.broadcast(trace.survivors()), ["run", "member"], "left_semi")


def _not_their_own(trace: Trace, due: DataFrame) -> DataFrame:
    """Streams of which their sender did not deliver just what it sent."""
    own = trace.parts.where("member = sender").groupBy(*SENT).agg(F.sum("deliveries").alias("had"))
    odd = trace.unlike.where("member = sender").select(*SENT).distinct().withColumn("odd", F.lit(True))
    known = due.join(own, list(SENT), "left").join(odd, list(SENT), "left")
    return known.where("odd OR had IS NULL OR had <> messages OR member <> sender").select(*SENT).distinct()


def _with_own(trace: Trace, sends: DataFrame) -> DataFrame:
    """Messages, with whether their sender delivered them (``own``, or null), and did so late."""
    own = trace.delivered.where("member = sender").groupBy(*MESSAGE).agg(F.max("late").alias("late"))
    return sends.join(own.withColumn("own", F.lit(True)), list(MESSAGE), "left")


def _missing(check: str, trace: Trace, due: DataFrame, said: str) -> DataFrame:
    """What is due to a member that it never delivered."""
    keys = [*MESSAGE, "member"]
    return breach(check, due.join(trace.delivered.select(*keys), keys, "left_anti"), said)


CHECKS = (integrity, fifo, reached, agreement, validity, reported)
