"""The dealing room's job: moving averages of every stock, and alerts to dealers when a price turns.

``pluribus demo`` runs it live beside its providers and dealers; on a bus of your own it is a job like any other, with
the option ``url``. It reads the durable topics ``stocks/EXCHANGE/SYMBOL``, bodies with ``symbol`` and ``price``, and
answers on ``averages`` and ``alerts/EXCHANGE``. What the pattern could not place (an event that came too late) is told
on ``alerts/problems``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TURN = """
    PARTITION BY topic ORDER BY time, offset
    MEASURES FIRST(price) AS top, LAST(DOWN.price) AS bottom, LAST(price) AS now, COUNT(*) AS ticks, LAST(time) AS at
    PATTERN (TOP DOWN{5,} UP{5}) WITHIN 100 ROWS
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
"""
"""A price falls at least five times in a row, and then rises five times. Dealers may run it in their own process."""
LATE_S = 3
"""How much later than another provider's an event may come and still be put in its place."""
BUCKETS = 4


def job(spark: SparkSession, options: Mapping[str, str]) -> dict[str, Any]:
    from pyspark.sql import functions as F

    from .functions import windows
    from .patterns import match_recognize
    from .source import register

    register(spark)
    every = f"{options.get('every_ms', 500)} milliseconds"

    def ticks(columns: str) -> DataFrame:
        source = spark.readStream.format("pluribus").options(url=options["url"], topic="stocks/#", start="earliest")
        return source.options(fields="symbol string, price double", columns=columns).load()

    def answers(table: DataFrame, name: str, **more: str) -> Any:
        sink = table.writeStream.format("pluribus").options(url=options["url"], writer=f"dealing {name}", **more)
        return sink.trigger(processingTime=every)

    moving = windows(
        ticks("time,symbol,price"),
        "10 seconds",
        every="5 seconds",
        by=["symbol"],
        late=f"{LATE_S} seconds",
        mean=F.avg("price"),
        low=F.min("price"),
        high=F.max("price"),
        ticks=F.count("price"),
    )
    turns = match_recognize(ticks("topic,offset,time,price"), TURN, lateness_s=LATE_S, buckets=BUCKETS)
    place = F.split("topic", "/")
    alerts = turns.withColumns(
        {
            "symbol": place[2],
            "topic": F.when(F.col("problem").isNull(), F.concat(F.lit("alerts/"), place[1])).otherwise(
                F.lit("alerts/problems")
            ),
        }
    )
    averages = answers(moving.where("mean > 0"), "averages", topic="averages")
    return {"alerts": answers(alerts, "alerts"), "averages": averages}
