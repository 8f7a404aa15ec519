"""Ranges of settings that the configuration and the Python API share."""

from __future__ import annotations

MOST_THREADS = 1024
"""Threads of one kind per process."""

DEEPEST_QUEUE = 4096
"""Reads in flight per ring or queue."""

LONGEST_READ = 16 << 20
"""Bytes of one read, and of one gap within a read."""

LARGEST_COUNT = 2**31 - 1
"""Largest count without a range of its own."""

LONGEST_SECS = 10.0**9
"""Longest time-out, 32 years: native code counts it in nanoseconds."""

LARGEST_SEED = 2**63 - 1
"""Largest seed that torch accepts."""

MOST_BYTES = 2**50
"""Largest size of any memory: 1 PiB."""
