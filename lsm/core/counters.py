"""The vocabulary of counters: what a batch counts, under one name everywhere."""

from __future__ import annotations

COUNTERS = (
    "requests",
    "hits",
    "static_hits",
    "victim_hits",
    "constant_hits",
    "misses",
    "bypasses",
    "evictions",
    "spilled",
    "victim_overflow",
)
"""What is counted for each batch of rows: rows asked for; those that the cache, the static
partition, the victim buffer and the constant buffer held; those read from storage; rows not cached,
rows that left the cache, rows put into the victim buffer and rows that found no room there."""

EXCHANGED = ("duplicates", "ids_sent_bytes", "rows_sent_bytes")
"""What ranks that share a cache exchange: requests for rows that an owner had for another rank at
the same iteration, beside COUNTERS' requests; bytes of ids and of rows that went to other ranks."""

SPANS = ("plan_secs", "read_wait_secs", "replay_secs", "comm_secs", "comm_wait_secs")
"""Where the time of each batch of rows goes: planning, waiting for storage, copying rows once, to
whichever rank wants them; exchanging ids and messages with other ranks, and waiting until they are
ready to (mostly for their storage)."""

READ_AHEAD = ("iterations_in_flight", "reads_outstanding")
"""How far reads run ahead, seen when those of an iteration have been started: iterations whose rows
training has not taken, this one included, and reads that the device has not finished."""
