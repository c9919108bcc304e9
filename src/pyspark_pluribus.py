"""Where PySpark finds ``format("pluribus")`` by itself: it imports every top-level module called ``pyspark_…`` and takes
its ``DefaultSource``. So no session has to register it, neither a notebook's, nor ``spark-sql``, nor a pipeline's."""

from pluribus.pipeline.source import PluribusSource as DefaultSource

__all__ = ["DefaultSource"]
