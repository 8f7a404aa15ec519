"""The storage engines that can run on this machine."""

from lsm import native
from lsm.storage.engine import ENGINES as ALL_ENGINES

ENGINES = tuple(name for name in ALL_ENGINES if name != "io_uring" or not native.io_uring_problem())

QUEUED_ENGINES = tuple(name for name in ENGINES if name in ("posix", "io_uring"))
"""Those that keep reads in flight, and whose reads can be made to fail."""
