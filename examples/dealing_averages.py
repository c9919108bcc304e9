"""The dealing room on Spark: moving averages of every stock, and alerts to dealers when a price moves too far.

    pluribus pipeline run examples/dealing_averages.py --set url=client://127.0.0.1:47901/dealing --checkpoint progress

Reads the durable topics ``stocks/#``, bodies with ``symbol`` and ``price``; answers on ``averages`` and ``alerts``.
"""

from pyspark.sql import functions as F

from pluribus.pipeline.functions import windows
from pluribus.pipeline.source import register

MOVED = 0.05


def job(spark, options):
    register(spark)
    bus = {"url": options["url"]}
    ticks = spark.readStream.format("pluribus").options(**bus, topic="stocks/#", start=options.get("start", "earliest"))
    prices = {"mean": F.avg("price"), "low": F.min("price"), "high": F.max("price")}
    moving = windows(
        ticks.options(fields="symbol string, price double", columns="time,symbol,price").load(),
        "10 seconds",
        every="5 seconds",
        by=["symbol"],
        late="2 seconds",
        **prices,
    )
    moved = moving.where((F.col("high") - F.col("low")) / F.col("low") > MOVED)

    def answers(table, topic):
        return table.writeStream.format("pluribus").options(**bus, topic=topic, writer=f"dealing {topic}")

    return {"averages": answers(moving, "averages"), "alerts": answers(moved, "alerts")}
