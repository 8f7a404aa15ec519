"""The vocabulary of counters, with one name per counter everywhere."""

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
"""Counters of a batch, in rows: requested; held by the cache (with storage.engine=memory and no
cache, by memory), the static partition, the victim buffer and the constant buffer; read from
storage; bypassed; evicted from the cache; put into the victim buffer; dropped because it had no
room."""

BY_SOURCE = COUNTERS[:6]
"""Requests, and the source of each: one of the tiers, or storage. A graph with several node types
also has them by type, as NAME/TYPE."""

EXCHANGED = ("duplicates", "ids_sent_bytes", "rows_sent_bytes")
"""Counters of ranks that share a cache: requests for rows that another rank requested from the same
owner at the same iteration, in addition to COUNTERS' requests; bytes of ids and of rows sent to
other ranks."""

STORAGE_SUMS = ("bytes_read", "bytes_requested")
"""The storage engine's bytes from the drive, and bytes of requested rows. They count when rows are
read, some iterations before their use."""

SPANS = ("plan_secs", "read_wait_secs", "replay_secs", "comm_secs", "comm_wait_secs")
"""Time of each batch of rows: planning; waiting for storage; copying rows to their requesters;
exchanging ids and messages with other ranks; waiting for other ranks (mostly for their storage)."""

READ_AHEAD = ("iterations_in_flight", "reads_outstanding")
"""Depth of reading ahead after an iteration's reads have started: iterations whose rows training
has not taken, including this one, and reads that the drive has outstanding."""
