// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GpuMoves in the memory of a Backend, which plans share and hand on to later ones.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cache/gpu_moves.h"
#include "kernels/core/backend_array.h"

namespace lsm {

/// Arrays for the moves of one plan.
template <class Backend>
struct MoveArrays {
  explicit MoveArrays(Backend& backend)
      : ids(backend),
        source(backend),
        slot(backend),
        miss_position(backend),
        position(backend),
        line(backend),
        evicts(backend),
        leaving_slot(backend),
        replayed(backend) {}

  BackendArray<int64_t, Backend> ids;             // [n]
  BackendArray<uint8_t, Backend> source;          // [n] by position: a RowSource
  BackendArray<int64_t, Backend> slot;            // [n]
  BackendArray<uint32_t, Backend> miss_position;  // [misses]
  BackendArray<uint32_t, Backend> position;       // [k]
  BackendArray<int64_t, Backend> line;            // [k]
  BackendArray<uint8_t, Backend> evicts;          // [k]
  BackendArray<int64_t, Backend> leaving_slot;    // [k] if there is a victim buffer
  typename Backend::Event replayed;               // behind the executor's last use
};

/// A Backend and the arrays of plans that are over. Plans may outlive the planner, so they share
/// it.
template <class Backend>
class MovesMemory {
 public:
  explicit MovesMemory(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}
  ~MovesMemory() {
    try {
      backend_->enter();
      for (const auto& arrays : free_) backend_->block(arrays->replayed);
    } catch (const std::exception&) {
      // It was reported, or will be, by whoever replays.
    }
    backend_->drain();
  }
  MovesMemory(const MovesMemory&) = delete;
  MovesMemory& operator=(const MovesMemory&) = delete;

  Backend& backend() { return *backend_; }
  /// To be held for any use of the backend.
  std::mutex& mutex() { return mutex_; }

  /// Under the mutex. Work queued from now on may write the arrays.
  std::unique_ptr<MoveArrays<Backend>> take() {
    const std::lock_guard lock(free_mutex_);
    if (free_.empty()) return std::make_unique<MoveArrays<Backend>>(*backend_);
    auto arrays = std::move(free_.back());
    free_.pop_back();
    backend_->block(arrays->replayed);
    return arrays;
  }
  /// Does not wait for who uses the backend: the caller may be the interpreter.
  void give_back(std::unique_ptr<MoveArrays<Backend>> arrays) {
    const std::lock_guard lock(free_mutex_);
    free_.push_back(std::move(arrays));
  }

 private:
  const std::unique_ptr<Backend> backend_;  // outlives the arrays
  std::mutex mutex_;
  std::mutex free_mutex_;
  std::vector<std::unique_ptr<MoveArrays<Backend>>> free_;
};

template <class Backend>
class MovesOnBackend final : public GpuMoves {
 public:
  MovesOnBackend(std::shared_ptr<MovesMemory<Backend>> memory,
                 std::unique_ptr<MoveArrays<Backend>> arrays, int64_t num_rows, int64_t num_misses,
                 int64_t num_asking, int64_t num_leaving)
      : num_rows(num_rows),
        num_misses(num_misses),
        num_asking(num_asking),
        num_leaving(num_leaving),
        memory_(std::move(memory)),
        arrays_(std::move(arrays)) {}
  ~MovesOnBackend() override { memory_->give_back(std::move(arrays_)); }

  MoveArrays<Backend>& arrays() const { return *arrays_; }

  Listed list() const override {
    const std::lock_guard lock(memory_->mutex());
    Backend& backend = memory_->backend();
    backend.enter();
    Listed listed;
    const auto download = [&](auto& values, const auto& array, int64_t count) {
      values.resize(static_cast<size_t>(count));
      backend.download(values.data(), array.data(), values.size() * sizeof(values[0]));
    };
    download(listed.ids, arrays_->ids, num_rows);
    download(listed.slot, arrays_->slot, num_rows);
    download(listed.miss_position, arrays_->miss_position, num_misses);
    download(listed.position, arrays_->position, num_asking);
    download(listed.line, arrays_->line, num_asking);
    download(listed.evicts, arrays_->evicts, num_asking);
    download(listed.leaving_slot, arrays_->leaving_slot, num_leaving);
    backend.synchronize();
    return listed;
  }

  const int64_t num_rows;
  const int64_t num_misses;
  const int64_t num_asking;
  const int64_t num_leaving;  // num_asking, or 0 without a victim buffer

 private:
  const std::shared_ptr<MovesMemory<Backend>> memory_;
  std::unique_ptr<MoveArrays<Backend>> arrays_;
};

}  // namespace lsm
