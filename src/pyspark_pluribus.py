"""Where PySpark finds ``format("pluribus")`` by itself: it imports every top-level module called ``pyspark_…`` and
takes its ``DefaultSource``. So no session has to register it: not a notebook's, not that of ``spark-sql``."""

from pluribus.pipeline.source import PluribusSource as DefaultSource

__all__ = ["DefaultSource"]
