"""Defects that `make test-emulated` plants, one per run, and must find.

``old`` is in the file once and is written as ``new``, where PLANTED says whether the run asks for
it. ``build`` and ``tests`` say which run it is; ``found`` is a part of its output.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    old: str
    new: str
    build: str  # memory or race
    tests: str
    found: str


MUTATIONS = [
    Mutation(
        "a wait between streams is left out",
        "kernels/core/cuda_backend.h",
        "void block(const Event& event) { event.CudaEvent::block(stream()); }",
        "void block(const Event& event) { if (!PLANTED) event.CudaEvent::block(stream()); }",
        "race",
        "executor",
        "data race",
    ),
    Mutation(
        "moves of a plan are written before they were replayed",
        "cache/gpu_moves_on_backend.h",
        "    free_.pop_back();\n    backend_->block(arrays->replayed);",
        "    free_.pop_back();\n    if (!PLANTED) backend_->block(arrays->replayed);",
        "race",
        "executor",
        "data race",
    ),
    Mutation(
        "a read-back before its copy is done",
        "kernels/core/cuda_backend.h",
        'done_.wait(timeout_secs_, "work in a stream of its own");',
        'if (!PLANTED) done_.wait(timeout_secs_, "work in a stream of its own");',
        "race",
        "planner",
        "data race",
    ),
    Mutation(
        "a store-release is plain",
        "kernels/io/nvme/protocol/memory_order.h",
        "SystemAtomic<T>(value).store(desired, order::memory_order_release);",
        "if (PLANTED) { value = desired; return; }\n"
        "  SystemAtomic<T>(value).store(desired, order::memory_order_release);",
        "race",
        "nvme",
        "data race",
    ),
    Mutation(
        "a barrier of a warp is left out",
        "kernels/core/lanes.h",
        "    __syncwarp();\n    body(static_cast<int>(threadIdx.x % kLanes));\n    __syncwarp();",
        "    if (!PLANTED) __syncwarp();\n    body(static_cast<int>(threadIdx.x % kLanes));\n"
        "    if (!PLANTED) __syncwarp();",
        "race",
        "planner",
        "data race",
    ),
    Mutation(
        "the sum of a tile is written plainly",
        "kernels/core/ordered_sum.h",
        "if (lane == 0) atomic_store(words + tile, kAll |",
        "const uint64_t all = kAll | static_cast<uint64_t>(earlier + sum);\n"
        "      if (lane == 0 && PLANTED) words[tile] = all;\n"
        "      if (lane == 0 && !PLANTED) atomic_store(words + tile, kAll |",
        "race",
        "sampler",
        "data race",
    ),
    Mutation(
        "cudaSetDevice is missing",
        "kernels/core/cuda_backend.h",
        "void enter() const { use_device(device_); }",
        "void enter() const { if (!PLANTED) use_device(device_); }",
        "memory",
        "executor",
        "current device",
    ),
    Mutation(
        "rows behind the bus are read by many blocks",
        "kernels/core/cuda_launch.h",
        "max_blocks_(share == GpuShare::kFar ? kFarBlocks : cuda_launch_detail::kMaxBlocks) {}",
        "max_blocks_(share == GpuShare::kFar && !PLANTED ? kFarBlocks\n"
        "                                                    : cuda_launch_detail::kMaxBlocks) {}",
        "memory",
        "SMs",
        "bytes over the bus",
    ),
    Mutation(
        "streams of rows behind the bus have priority",
        "kernels/core/cuda_check.cu",
        "const int priority = share == GpuShare::kFar ? lowest",
        "const int priority = share == GpuShare::kFar && !PLANTED ? lowest",
        "memory",
        "SMs",
        "bytes over the bus",
    ),
    Mutation(
        "a vector access is misaligned",
        "kernels/gather/copy_rows_functors.h",
        "  if (alignment % sizeof(Word16) == 0) {",
        "  if ((PLANTED ? row_bytes : alignment) % sizeof(Word16) == 0) {",
        "memory",
        "gathers",
        "misaligned",
    ),
    Mutation(
        "a kernel touches freed memory",
        "kernels/sample/nodes_on_backend.h",
        "    const int64_t* const n_id = n_id_.grow(max_nodes, size_);",
        "    const int64_t* const before = n_id_.data();\n"
        "    const int64_t* const grown = n_id_.grow(max_nodes, size_);\n"
        "    const int64_t* const n_id = PLANTED ? before : grown;",
        "memory",
        "sampler",
        "freed",
    ),
    Mutation(
        "a source is in the first subgraph",
        "kernels/sample/sampler_functors.h",
        "edges.sources[at] += nodes.batch.subgraph[nodes.begin() + i] * num_sources;",
        "if (!PLANTED) edges.sources[at] += nodes.batch.subgraph[nodes.begin() + i] * num_sources;",
        "memory",
        "sampler",
        "same(edges",
    ),
    Mutation(
        "all subgraphs have the time of the first seed",
        "kernels/sample/sampler_functors.h",
        "graph.leave_out_later(in, nodes.batch.subgraph_of(local));",
        "graph.leave_out_later(in, PLANTED ? 0 : nodes.batch.subgraph_of(local));",
        "memory",
        "sampler",
        "expected.num_sampled",
    ),
    Mutation(
        "an edge is chosen by its weight twice",
        "kernels/sample/choice_functors.h",
        "if (lane == first) offered[lane] = kNone;",
        "if (lane == first && !PLANTED) offered[lane] = kNone;",
        "memory",
        "sampler",
        "same(edges",
    ),
    Mutation(
        "counts of a hop are of nodes that have moved",
        "kernels/sample/sampler_on_backend.h",
        "      nodes[i].batch = edges_[i].destinations.batch();  // which may have grown",
        "      if (!PLANTED) nodes[i].batch = edges_[i].destinations.batch();",
        "memory",
        "sampler",
        "freed",
    ),
    Mutation(
        "the host touches device memory",
        "kernels/sample/sums_on_backend.h",
        "    sizes->resize(count_);",
        "    sizes->resize(count_);\n    if (PLANTED) sizes->front() = *sizes_.data();",
        "memory",
        "sampler",
        "the host",
    ),
    Mutation(
        "a thread's captures are not relaxed",
        "kernels/core/cuda_check.h",
        "cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;",
        "cudaStreamCaptureMode mode_ =\n"
        "      PLANTED ? cudaStreamCaptureModeGlobal : cudaStreamCaptureModeRelaxed;",
        "memory",
        "capture",
        "spoils the capture",
    ),
    Mutation(
        "lanes of a warp meet in different places",
        "kernels/core/lanes.h",
        "    return __shfl_sync(0xFFFFFFFFu, values[0], lane);",
        "    if (PLANTED && threadIdx.x % kLanes == 3) return 0;\n"
        "    return __shfl_sync(0xFFFFFFFFu, values[0], lane);",
        "memory",
        "planner",
        "diverge",
    ),
]
