"""A backbone: one pipeline from raw events on durable topics to answers on durable topics, and tables of every tier.

General layout: ``configuration`` reads its file into ``parts``; ``checks`` holds them to each other, ``places`` finds
their lines. ``verdicts`` judges events in executors, ``sorting`` does it batch by batch, ``intake`` is the standing
query that has them judged, counted (``report``) and published as clean or dead ones; ``groups`` says which golds share
a query, also when the file has changed; ``answers`` joins clean events with other tables and topics and computes the
gold answers; ``tiers`` writes bronze, silver, dead and gold tables and looks after their files. ``running`` runs the
whole backbone, ``reading`` tells its report, ``backfill`` computes a range of time again from bronze, ``resending``
sends dead events round again, ``picture`` draws the flow.
"""
