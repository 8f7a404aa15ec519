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
        "an id out of range enters the window",
        "cache/next_use_chain_functors.h",
        "if (ids[i] < 0 || ids[i] >= end) ",
        "if (!PLANTED && (ids[i] < 0 || ids[i] >= end)) ",
        "memory",
        "planner",
        "is_refused",
    ),
    Mutation(
        "misses are listed in too few places",
        "cache/set_cache_functors.h",
        "      id[before & kMissMask] = rows.ids[i];",
        "      id[PLANTED ? (before & kMissMask) / 2 : before & kMissMask] = rows.ids[i];",
        "memory",
        "planner",
        "plan.miss_id",
    ),
    Mutation(
        "more misses than expected are not read back",
        "cache/set_cache_on_backend.h",
        "if (num_misses > expected_misses || num_victims > expected_victims) {",
        "if ((num_misses > expected_misses || num_victims > expected_victims) && !PLANTED) {",
        "memory",
        "planner",
        "plan.miss_id",
    ),
    Mutation(
        "the rows of the highest ranks leave the pool first",
        "cache/victims_functors.h",
        "return kUnknown | ~rank;",
        "return kUnknown | (PLANTED ? rank : ~rank);",
        "memory",
        "planner",
        "plan.",
    ),
    Mutation(
        "a queue forgets the rows that it has",
        "cache/victims_functors.h",
        "    if (queues.sizes[queue] + before < queues.most) return;",
        "    if ((PLANTED ? 0 : queues.sizes[queue]) + before < queues.most) return;",
        "memory",
        "planner",
        "plan.",
    ),
    Mutation(
        "a row leaves its place of the victims' table without an atomic operation",
        "cache/victims_functors.h",
        "    atomic_store(&table[place], kLeft);",
        "    if (PLANTED) table[place] = kLeft;\n    else atomic_store(&table[place], kLeft);",
        "race",
        "planner",
        "data race",
    ),
    Mutation(
        "lanes take the address of another row",
        "kernels/gather/copy_rows_functors.h",
        "return lane / row_lanes + k * step; };",
        "return (PLANTED ? k : lane / row_lanes + k * step); };",
        "memory",
        "gather",
        "bytes",
    ),
    Mutation(
        "rows behind the last are copied",
        "kernels/gather/copy_rows_functors.h",
        "*source = i < count ?",
        "*source = (PLANTED || i < count) ?",
        "memory",
        "gather",
        "memory",
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
        "gpu_checks.cpp",
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
    Mutation(
        "bounce memory is used again without a wait",
        "kernels/core/cuda_backend.h",
        "if (transfers_.is_crowded(bytes)) synchronize();",
        "if (transfers_.is_crowded(bytes)) {\n      if (PLANTED) {\n"
        "        transfers_.take_back();\n      } else {\n        synchronize();\n      }\n"
        "    }",
        "memory",
        "bounce memory",
        "(array",
    ),
    Mutation(
        "the offset of a gathered row has 32 bits",
        "kernels/gather/copy_rows_functors.h",
        "return is_kept ? from + row * row_bytes : nullptr;",
        "const int64_t offset = row * row_bytes;\n"
        "    return is_kept ? from + (PLANTED ? static_cast<uint32_t>(offset) : "
        "offset) : nullptr;",
        "memory",
        "large memory",
        "rows of a gather",
    ),
    Mutation(
        "the offset of a line has 32 bits",
        "cache/executor_functors.h",
        "return tier[tier_now] + slot[i] * row_bytes;",
        "const int64_t offset = slot[i] * row_bytes;\n"
        "    return tier[tier_now] + (PLANTED ? static_cast<uint32_t>(offset) : offset);",
        "memory",
        "large memory",
        "rows of lines",
    ),
    Mutation(
        "the offset of a row that enters a line has 32 bits",
        "cache/executor_functors.h",
        "LSM_HOST_DEVICE std::byte* target(int64_t j) const { return lines + line[j] * "
        "moved.row_bytes; }",
        "LSM_HOST_DEVICE std::byte* target(int64_t j) const {\n"
        "    const int64_t offset = line[j] * moved.row_bytes;\n"
        "    return lines + (PLANTED ? static_cast<uint32_t>(offset) : offset);\n  }",
        "memory",
        "large memory",
        "rows of lines",
    ),
    Mutation(
        "a drive is told by a store-release of device scope",
        "kernels/io/nvme/protocol/memory_order.h",
        "  SystemAtomic<T>(value).store(desired, order::memory_order_release);",
        "  if (PLANTED) {\n"
        "    ::cuda::atomic_ref<T, ::cuda::thread_scope_device>(value).store(\n"
        "        desired, order::memory_order_release);\n    return;\n  }\n"
        "  SystemAtomic<T>(value).store(desired, order::memory_order_release);",
        "race",
        "nvme: reads",
        "data race",
    ),
    Mutation(
        "a part of a pool is idle at once",
        "comm/gpu_memory.cu",
        '    return event_.done("the use of a batch\'s memory");',
        '    return PLANTED || event_.done("the use of a batch\'s memory");',
        "race",
        "memory: pool",
        "data race",
    ),
    Mutation(
        "a download has the kind of an upload",
        "kernels/core/cuda_backend.h",
        "check_cuda(cudaMemcpyAsync(staged, source, bytes, cudaMemcpyDeviceToHost, stream()),",
        "check_cuda(cudaMemcpyAsync(staged, source, bytes,\n"
        "                               PLANTED ? cudaMemcpyHostToDevice : "
        "cudaMemcpyDeviceToHost,\n                               stream()),",
        "memory",
        "planner",
        "the kind of",
    ),
    Mutation(
        "a block has more threads than its kernel allows",
        "kernels/core/cuda_launch.h",
        "run_each<<<num_blocks(count, kBlockThreads), kBlockThreads, 0, stream_>>>(count, f);",
        "run_each<<<num_blocks(count, kBlockThreads), PLANTED ? 512 : kBlockThreads, "
        "0, stream_>>>(\n        count, f);",
        "memory",
        "sampler",
        "__launch_bounds__",
    ),
    Mutation(
        "cudaSetDevice is missing at a backend's end",
        "kernels/core/cuda_backend.h",
        "const OwnerEnd end(device_);",
        "const OwnerEnd end(PLANTED ? current_device() : device_);",
        "memory",
        "memory: ended elsewhere",
        "current device",
    ),
    Mutation(
        "cudaSetDevice is missing at page-locked memory's end",
        "kernels/core/page_lock.cu",
        "const OwnerEnd end(device_);",
        "const OwnerEnd end(PLANTED ? current_device() : device_);",
        "memory",
        "memory: ended elsewhere",
        "current device",
    ),
    Mutation(
        "cudaSetDevice is missing at a block's end",
        "comm/gpu_memory.cu",
        "const OwnerEnd end(device_);\n    cudaFree(data_);",
        "const OwnerEnd end(PLANTED ? current_device() : device_);\n    cudaFree(data_);",
        "memory",
        "memory: ended elsewhere",
        "current device",
    ),
    Mutation(
        "cudaSetDevice is missing at a mapping's end",
        "comm/gpu_memory.cu",
        "const OwnerEnd end(device_);\n    cudaIpcCloseMemHandle(data_);",
        "const OwnerEnd end(PLANTED ? current_device() : device_);\n"
        "    cudaIpcCloseMemHandle(data_);",
        "memory",
        "memory: ended elsewhere",
        "no mapping",
    ),
    Mutation(
        "evictions are counted wrongly",
        "cache/set_cache_functors.h",
        "int64_t{turn.evictions});",
        "PLANTED ? num_placed : int64_t{turn.evictions});",
        "memory",
        "planner",
        "counters",
    ),
    Mutation(
        "newcomers that are ranked are taken in request order",
        "cache/set_cache_functors.h",
        "kNoKey - 1 - sets.policy.key(newcomer(j), turn);",
        "kNoKey - 1 - (PLANTED ? 0 : sets.policy.key(newcomer(j), turn));",
        "memory",
        "planner",
        "plan.",
    ),
    Mutation(
        "rows that were turned away keep the outcome of an earlier batch",
        "cache/set_cache_functors.h",
        "if (moves.order[j] != kNoKey) write(",
        "if (!PLANTED && moves.order[j] != kNoKey) write(",
        "memory",
        "planner",
        "plan.",
    ),
    Mutation(
        "bypasses are counted wrongly",
        "cache/set_cache_functors.h",
        "const int64_t num_bypassed = end - i - num_placed;",
        "const int64_t num_bypassed = end - i - (PLANTED ? turn.evictions : num_placed);",
        "memory",
        "planner",
        "counters",
    ),
    Mutation(
        "two warps write the same row",
        "kernels/gather/copy_rows_functors.h",
        "    if (source != nullptr) copy_row<Word>(lanes, source, rows.target(i), row_bytes);",
        "    if (source != nullptr) copy_row<Word>(lanes, source, rows.target(i), "
        "row_bytes);\n    if (PLANTED && i == 7) copy_row<Word>(lanes, rows.source(2), "
        "rows.target(2), row_bytes);",
        "memory",
        "gathers",
        "a race of warps",
    ),
    Mutation(
        "memory is left where growth fails",
        "kernels/core/backend_array.h",
        "    std::swap(data_, larger.data_);\n    capacity_ = capacity;",
        "    std::swap(data_, larger.data_);\n    capacity_ = capacity;\n"
        "    if (PLANTED) larger.data_ = nullptr;",
        "memory",
        "failing calls: sampler",
        "things are left",
    ),
    Mutation(
        "a pool is not trimmed",
        "kernels/core/cuda_memory.cu",
        "if (pool != nullptr && cudaMemPoolTrimTo(pool, 0) != cudaSuccess) cudaGetLastError();",
        "if (pool != nullptr && !PLANTED && cudaMemPoolTrimTo(pool, 0) != cudaSuccess) {\n"
        "    cudaGetLastError();\n  }",
        "memory",
        "memory: trimmed",
        "trimmed.reserved",
    ),
    Mutation(
        "an owner's end leaves its error to others",
        "kernels/core/cuda_check.h",
        "~OwnerEnd() { cudaGetLastError(); }",
        "~OwnerEnd() {\n    if (!PLANTED) cudaGetLastError();\n  }",
        "memory",
        "failing calls: gather",
        "leaves its error",
    ),
    Mutation(
        "plans are replayed after one that failed",
        "cache/executor_on_backend.h",
        "    if (!std::exchange(is_between_plans_, false)) {",
        "    if (!std::exchange(is_between_plans_, false) && !PLANTED) {",
        "memory",
        "failing calls: rows",
        "rows after an error",
    ),
    Mutation(
        "the planner goes on after an error",
        "cache/set_cache_on_backend.h",
        "    if (!std::exchange(is_whole_, false)) {",
        "    if (!std::exchange(is_whole_, false) && !PLANTED) {",
        "memory",
        "failing calls: plans",
        "call ",
    ),
    Mutation(
        "rows of an even size are copied byte by byte",
        "kernels/gather/copy_rows_functors.h",
        "  } else if (alignment % sizeof(uint16_t) == 0) {",
        "  } else if (alignment % sizeof(uint16_t) == 0 && !PLANTED) {",
        "memory",
        "traffic of a row",
        "202 bytes: 14.25 instructions",
    ),
]
