"""Opens the exchange of a cache group over the links that its ranks have."""

from __future__ import annotations

from lsm.comm.batches import GpuBatches, HostBatches
from lsm.comm.exchange import Exchange
from lsm.comm.group import CacheGroup
from lsm.comm.link_choice import ChosenLinks, find_links, host_links
from lsm.comm.links import GlooLink, IpcLink, Link, NcclLink, ShmLink
from lsm.comm.owners import OwnerMap
from lsm.comm.request import RowFormat
from lsm.comm.request_lists import RequestLists
from lsm.comm.row_exchange import RowExchange
from lsm.core.device import GpuPlace


def open_exchange(
    group: CacheGroup,
    owners: OwnerMap,
    rows: RowFormat,
    *,
    num_threads: int = 1,
    gpu: GpuPlace | None = None,
    pool_bytes: int = 0,
) -> Exchange:
    """This rank's part in the exchange of ``group``, for rows of one size. A collective of the
    group.

    gpu: its memory holds the batches; None: they are host memory.
    pool_bytes: GPU memory for batches, allocated at once. Raises RuntimeError, on every rank, if
    ``comm.transport`` names an unavailable link.
    """
    lists = RequestLists(group, owners, num_threads)
    return Exchange(group, lists, open_rows(group, rows, num_threads, gpu, pool_bytes))


def open_rows(
    group: CacheGroup,
    rows: RowFormat,
    num_threads: int = 1,
    gpu: GpuPlace | None = None,
    pool_bytes: int = 0,
) -> RowExchange:
    """The exchange of rows of one size. Arguments and errors as open_exchange()."""
    options, stream = group.options, group.rows
    batches: HostBatches | GpuBatches
    if gpu is None:
        names, nccl = host_links(group), None
        batches = HostBatches(rows, num_threads)
    else:
        if gpu not in group.links:
            group.links[gpu] = find_links(group, gpu)
        found: ChosenLinks = group.links[gpu]
        names, nccl = found.by_peer, found.nccl
        batches = GpuBatches(rows, gpu, pool_bytes, options.timeout_secs)
    chunk_rows = max(1, options.chunk_bytes // max(1, rows.row_bytes))
    links: list[Link] = []
    for name in dict.fromkeys(names.values()):
        peers = [peer for peer in names if names[peer] == name]
        if name == "shm":
            assert isinstance(batches, HostBatches), "host_links() gives this link"
            links.append(ShmLink(peers, batches))
        elif name == "ipc":
            assert isinstance(batches, GpuBatches), "find_links() gives this link"
            links.append(IpcLink(peers, batches, stream))
        elif name == "nccl":
            assert isinstance(batches, GpuBatches), "find_links() gives this link"
            assert nccl is not None, "find_links() gives its process group as well"
            links.append(NcclLink(peers, batches, stream, nccl, options.timeout_secs))
        else:
            links.append(GlooLink(peers, batches, stream, chunk_rows, options.timeout_secs))
    return RowExchange(group, batches, links)
