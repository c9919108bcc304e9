"""The river on Spark: levels up by a fifth in three places within six hours, while a model warns of floods.

    pluribus pipeline run examples/river_floods.py --set url=client://127.0.0.1:47901/rivers --checkpoint progress

Reads the durable topics ``rivers/RIVER/...``: levels with ``river``, ``town``, ``lat``, ``lon``, ``level``, ``usual``,
and warnings with ``river``, ``model``, ``risk``. Answers on ``floods/RIVER``; events that came too late to count are
told on ``floods/problems``.
"""

from pyspark.sql import functions as F

from pluribus.pipeline.patterns import match_recognize
from pluribus.pipeline.source import register

FIELDS = "river string, town string, lat double, lon double, level double, usual double, model string, risk double"
FLOOD = """
    PARTITION BY river ORDER BY time
    MEASURES R1.place.name AS one, R2.place.name AS two, R3.place.name AS three, WARNING.risk AS risk
    PATTERN (R1 ANY*? R2 ANY*? R3 ANY*? WARNING | WARNING ANY*? R1 ANY*? R2 ANY*? R3)
    WITHIN INTERVAL '6' HOUR AND 500 ROWS
    DEFINE
        R1 AS level >= 1.2 * usual AND WITHIN(place, 54.66, -2.75, 40000),
        R2 AS level >= 1.2 * usual AND WITHIN(place, 54.66, -2.75, 40000) AND place.name <> R1.place.name,
        R3 AS level >= 1.2 * usual AND WITHIN(place, 54.66, -2.75, 40000)
              AND place.name <> R1.place.name AND place.name <> R2.place.name,
        WARNING AS model = 'flood' AND risk > 0.5
"""


def job(spark, options):
    register(spark)
    bus = {"url": options["url"]}
    events = (
        spark.readStream.format("pluribus").options(**bus, topic="rivers/#", start="earliest", fields=FIELDS).load()
    )
    placed = events.withColumn("place", F.struct(F.col("town").alias("name"), "lat", "lon"))
    floods = match_recognize(placed, FLOOD, lateness_s=float(options.get("late", 60)), buckets=4)
    topic = F.when(F.col("problem").isNull(), F.concat(F.lit("floods/"), "river")).otherwise(F.lit("floods/problems"))
    written = floods.withColumn("topic", topic).writeStream.format("pluribus")
    return {"floods": written.options(**bus, writer="floods")}
