"""The door to Spark: events that outgrow a process.

General layout: ``session`` opens a Spark session on any of its engines; ``traces`` gives histories of runs a tabular
form; ``conformance`` checks them for every promise of order and delivery; ``functions`` are the parts that jobs are
made of, ``patterns`` finds complex events in tables and streams, and ``jobs`` runs it all. ``source`` and ``sink`` are
``format("pluribus")``, with ``columns`` (events as columns) and ``pushdown`` (conditions for the keepers) beside them;
``archive`` keeps topics as Parquet and plays them back.

Nothing of Spark is loaded before it is used, and nothing of Spark is imitated here.
"""
