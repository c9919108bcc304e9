"""The door to Spark: events that outgrow a process.

General layout: ``session`` opens a Spark session on any of its engines; ``traces`` gives histories of runs a tabular
form; ``conformance`` checks them for every promise of order and delivery; ``functions`` are the parts that jobs are
made of, ``patterns`` finds complex events in tables and streams, and ``jobs`` runs it all. ``source`` and ``sink`` are
``format("pluribus")``, with ``options``, ``offsets`` (the position of a stream), ``columns``, ``tables`` and ``heaps``
(events as columns), ``pushdown`` (conditions for the keepers) and ``trace_source`` beside them; ``status`` reports the
progress of queries, ``scale`` computes what a load needs; ``decoding`` makes columns of bodies in tables; ``archive``
keeps topics as Parquet and plays them back, on ``landing`` (tables that are files, each batch once), ``manifests``
(those of Spark's own sink), ``files`` (local ones and others), ``archived`` (what topics forgot) and ``retention``
(that waits for an archive). ``backbone`` is a whole pipeline from raw events to answers, from one file. ``traced``
makes histories of the files of ``connect(trace=)``, ``daemon`` is the process from which workers are forked,
``class_archive`` lets Java start sooner.

Nothing of Spark is loaded before it is used, and nothing of Spark is imitated here.
"""
