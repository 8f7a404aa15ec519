"""The only importer of the native module ``lsm._core``.

Tensors go in as DLPack (torch or NumPy, host memory); memory comes out as ``HostBuffer`` objects,
which torch wraps without a copy.
"""

from __future__ import annotations

import torch

try:
    import lsm._core as _core
except ImportError as error:
    raise RuntimeError(
        f"the native module lsm._core cannot be imported ({error}); "
        "build it with `pip install .` or `make build`"
    ) from error

COUNTER_NAMES = _core.COUNTER_NAMES
BufferPool = _core.BufferPool
CacheExecutor = _core.CacheExecutor
Comparator = _core.Comparator
CudaInfo = _core.CudaInfo
DirectMode = _core.DirectMode
EdgeLoss = _core.EdgeLoss
Fault = _core.Fault
GpuBuffer = _core.GpuBuffer
GpuGraph = _core.GpuGraph
GpuExecutor = _core.GpuExecutor
GpuPool = _core.GpuPool
GpuSampler = _core.GpuSampler
GpuScatter = _core.GpuScatter
HostBuffer = _core.HostBuffer
IntervalEdges = _core.IntervalEdges
LaborSampling = _core.LaborSampling
LadiesSampling = _core.LadiesSampling
LockedBlock = _core.LockedBlock
LockedBuffer = _core.LockedBuffer
LockedPool = _core.LockedPool
Mailbox = _core.Mailbox
MappedBlock = _core.MappedBlock
MappedFile = _core.MappedFile
NeighborSampler = _core.NeighborSampler
NeighborSampling = _core.NeighborSampling
NvmeOptions = _core.NvmeOptions
Operator = _core.Operator
OwnerHash = _core.OwnerHash
OwnerMap = _core.OwnerMap
PeerBlock = _core.PeerBlock
Penalty = _core.Penalty
Plan = _core.Plan
PlanArray = _core.PlanArray
Planner = _core.Planner
PlannerConfig = _core.PlannerConfig
ReadScheduler = _core.ReadScheduler
Reduction = _core.Reduction
SampleSizes = _core.SampleSizes
SampledSubgraph = _core.SampledSubgraph
ScheduledTicket = _core.ScheduledTicket
SharedBuffer = _core.SharedBuffer
SharedPool = _core.SharedPool
StopFlag = _core.StopFlag
SUM_WINDOW = _core.SUM_WINDOW
Storage = _core.Storage
StorageTicket = _core.Ticket
StreamPoolBytes = _core.StreamPoolBytes
ThreadError = _core.ThreadError
ThreadPool = _core.ThreadPool
Transfers = _core.Transfers
TWIN = _core.TWIN
TWIN_BACKWARDS = _core.TWIN_BACKWARDS
TypedEdges = _core.TypedEdges
TypedSampler = _core.TypedSampler
TypedSubgraph = _core.TypedSubgraph
add_rows = _core.add_rows
batch_key = _core.batch_key
build_info = _core.build_info
check_mapped = _core.check_mapped
check_metadata_limits = _core.check_metadata_limits
check_planner_config = _core.check_planner_config
complex_product = _core.complex_product
complex_product_backward = _core.complex_product_backward
count_by_range = _core.count_by_range
count_degrees = _core.count_degrees
distance_gradients_on = _core.distance_gradients_on
distance_scores = _core.distance_scores
distance_scores_backward = _core.distance_scores_backward
distances_on = _core.distances_on
draw_positions = _core.draw_positions
draw_simd = _core.draw_simd
edge_gradients_on = _core.edge_gradients_on
fill_csc = _core.fill_csc
fill_csc_order = _core.fill_csc_order
find_cuda = _core.find_cuda
find_pairs = _core.find_pairs
find_rows = _core.find_rows
form_queries_on = _core.form_queries_on
gather_embeddings = _core.gather_embeddings
gather_on = _core.gather_on
gather_rows = _core.gather_rows
in_degree = _core.in_degree
io_uring_problem = _core.io_uring_problem
labor_draws = _core.labor_draws
libnvm_problem = _core.libnvm_problem
losses_on = _core.losses_on
has_gpu_kernels = _core.has_gpu_kernels
has_host_kernels = _core.has_host_kernels
mask_equal = _core.mask_equal
make_queries = _core.make_queries
measure_nvme_reads = _core.measure_nvme_reads
measure_nvme_waves = _core.measure_nvme_waves
merge_lists = _core.merge_lists
needs_score = _core.needs_score
needs_window = _core.needs_window
num_read_slots = _core.num_read_slots
open_storage = _core.open_storage
open_transfers = _core.open_transfers
pack_metadata = _core.pack_metadata
pack_sources = _core.pack_sources
peer_access_problem = _core.peer_access_problem
philox2x32 = _core.philox2x32
philox4x32 = _core.philox4x32
planner_set_bytes = _core.planner_set_bytes
policy_names = _core.policy_names
query_gradients = _core.query_gradients
read_last_page = _core.read_last_page
reverse_pagerank = _core.reverse_pagerank
same_ids = _core.same_ids
scatter_rows = _core.scatter_rows
search_order = _core.search_order
simulate_cache = _core.simulate_cache
simulate_optimal = _core.simulate_optimal
softmax_loss = _core.softmax_loss
sort_lists = _core.sort_lists
stream_pool_bytes = _core.stream_pool_bytes
sum_rows_on = _core.sum_rows_on
trim_memory = _core.trim_memory
unpack_edges = _core.unpack_edges
unpack_metadata = _core.unpack_metadata
update_rows = _core.update_rows
update_rows_on = _core.update_rows_on

__all__ = [
    "COUNTER_NAMES",
    "SUM_WINDOW",
    "TWIN",
    "TWIN_BACKWARDS",
    "BufferPool",
    "CacheExecutor",
    "Comparator",
    "CudaInfo",
    "DirectMode",
    "EdgeLoss",
    "Fault",
    "GpuBuffer",
    "GpuExecutor",
    "GpuGraph",
    "GpuPool",
    "GpuSampler",
    "GpuScatter",
    "HostBuffer",
    "IntervalEdges",
    "LaborSampling",
    "LadiesSampling",
    "LockedBlock",
    "LockedBuffer",
    "LockedPool",
    "Mailbox",
    "MappedBlock",
    "MappedFile",
    "NeighborSampler",
    "NeighborSampling",
    "NvmeOptions",
    "Operator",
    "OwnerHash",
    "OwnerMap",
    "PeerBlock",
    "Penalty",
    "Plan",
    "PlanArray",
    "Planner",
    "PlannerConfig",
    "ReadScheduler",
    "Reduction",
    "SampleSizes",
    "SampledSubgraph",
    "ScheduledTicket",
    "SharedBuffer",
    "SharedPool",
    "StopFlag",
    "Storage",
    "StorageTicket",
    "StreamPoolBytes",
    "ThreadError",
    "ThreadPool",
    "Transfers",
    "TypedEdges",
    "TypedSampler",
    "TypedSubgraph",
    "add_rows",
    "as_device_tensor",
    "as_tensor",
    "batch_key",
    "build_info",
    "check_mapped",
    "check_metadata_limits",
    "check_planner_config",
    "complex_product",
    "complex_product_backward",
    "count_by_range",
    "count_degrees",
    "distance_gradients_on",
    "distance_scores",
    "distance_scores_backward",
    "distances_on",
    "draw_positions",
    "draw_simd",
    "edge_gradients_on",
    "fill_csc",
    "fill_csc_order",
    "find_cuda",
    "find_pairs",
    "find_rows",
    "form_queries_on",
    "gather_embeddings",
    "gather_on",
    "gather_rows",
    "has_gpu_kernels",
    "has_host_kernels",
    "in_degree",
    "io_uring_problem",
    "labor_draws",
    "libnvm_problem",
    "losses_on",
    "make_queries",
    "mask_equal",
    "measure_nvme_reads",
    "measure_nvme_waves",
    "merge_lists",
    "needs_score",
    "needs_window",
    "num_read_slots",
    "open_storage",
    "open_transfers",
    "pack_metadata",
    "pack_sources",
    "peer_access_problem",
    "philox2x32",
    "philox4x32",
    "planner_set_bytes",
    "policy_names",
    "query_gradients",
    "read_last_page",
    "reverse_pagerank",
    "same_ids",
    "scatter_rows",
    "search_order",
    "simulate_cache",
    "simulate_optimal",
    "softmax_loss",
    "sort_lists",
    "stream_pool_bytes",
    "sum_rows_on",
    "trim_memory",
    "unique_relabel",
    "unpack_edges",
    "unpack_metadata",
    "update_rows",
    "update_rows_on",
]


def as_tensor(
    buffer: HostBuffer | LockedBlock | LockedBuffer | PeerBlock | PlanArray | SharedBuffer,
    dtype: torch.dtype,
    count: int = -1,
) -> torch.Tensor:
    """The first ``count`` elements of ``buffer`` (-1: all) as a 1-D tensor of ``dtype``, without a
    copy.

    The tensor's storage holds the buffer. Its memory returns to the pool when the last tensor that
    shares the storage is freed.
    """
    if buffer.size == 0 or count == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype, count=count)


def as_device_tensor(buffer: GpuBuffer, dtype: torch.dtype) -> torch.Tensor:
    """As as_tensor(), for memory of a GpuPool: a tensor on the pool's GPU, or on the host for the
    twin. The pool reuses the memory after the default stream's last use."""
    return torch.from_dlpack(buffer.__dlpack__()).view(dtype)


def unique_relabel(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The distinct values of ``ids`` [n] int64 in first-seen order, and the inverse [n] int64.

    ``unique[inverse]`` equals ``ids``. Unlike ``torch.unique`` it does not sort.
    """
    unique = torch.empty(len(ids) + 1, dtype=torch.int64)
    inverse = torch.empty(len(ids), dtype=torch.int64)
    count = _core.unique_relabel(ids, unique, inverse)
    return unique[:count], inverse
