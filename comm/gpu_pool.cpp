// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "comm/gpu_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "kernels/core/check.h"

namespace lsm::comm {
namespace {

constexpr size_t kAlignment = 512;  // as cudaMalloc's and more

size_t round_up(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

GpuBuffer::GpuBuffer(std::shared_ptr<GpuPool> pool, const Place& place, const ExportedBlock& block,
                     size_t bytes)
    : pool_(std::move(pool)), place_(place), block_(block), bytes_(bytes) {}

GpuBuffer::~GpuBuffer() {
  pool_->give_back(place_, round_up(bytes_));
}

int GpuBuffer::device() const {
  return pool_->device();
}

GpuPool::GpuPool(std::unique_ptr<GpuMemory> memory, size_t block_bytes, double timeout_secs)
    : memory_(std::move(memory)), block_bytes_(round_up(block_bytes)), timeout_secs_(timeout_secs) {
  add_block(block_bytes_);
}

std::shared_ptr<GpuBuffer> GpuPool::take(size_t bytes) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      collect_returned();
      if (auto buffer = take_idle(bytes)) return buffer;
      if (returned_.empty()) {
        add_block(std::max(block_bytes_, round_up(bytes)));
        continue;
      }
    }
    const std::chrono::duration<double> waited = Clock::now() - start;
    if (waited.count() > timeout_secs_) {
      throw TimeoutError(
          concat("the GPU did not finish with earlier batches within ", timeout_secs_, " s"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

size_t GpuPool::size() const {
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.memory->size();
  return bytes;
}

void GpuPool::add_block(size_t bytes) {
  static std::atomic<int64_t> next_number{0};
  auto memory = memory_->allocate(bytes);
  const size_t capacity = memory->size() / kAlignment * kAlignment;
  blocks_.push_back({next_number++, std::move(memory), {{0, capacity}}});
}

/// The first part that is large enough; null if there is none.
std::shared_ptr<GpuBuffer> GpuPool::take_idle(size_t bytes) {
  const size_t needed = round_up(bytes);
  for (Block& block : blocks_) {
    const auto part = std::find_if(block.idle.begin(), block.idle.end(),
                                   [&](const auto& idle) { return idle.second >= needed; });
    if (part == block.idle.end()) continue;
    const auto [offset, size] = *part;
    block.idle.erase(part);
    if (size > needed) block.idle.emplace(offset + needed, size - needed);
    const GpuBuffer::Place place{block.number, offset};
    return std::make_shared<GpuBuffer>(shared_from_this(), place, *block.memory, bytes);
  }
  return nullptr;
}

void GpuPool::collect_returned() {
  std::erase_if(returned_, [this](const Returned& part) {
    if (!part.fence->passed()) return false;
    make_idle(part.place, part.bytes);
    return true;
  });
}

void GpuPool::make_idle(const GpuBuffer::Place& place, size_t bytes) {
  const auto block = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const Block& each) { return each.number == place.number; });
  auto& idle = block->idle;
  auto part = idle.emplace(place.offset, bytes).first;
  const auto next = std::next(part);
  if (next != idle.end() && part->first + part->second == next->first) {
    part->second += next->second;
    idle.erase(next);
  }
  if (part == idle.begin()) return;
  const auto previous = std::prev(part);
  if (previous->first + previous->second != part->first) return;
  previous->second += part->second;
  idle.erase(part);
}

void GpuPool::give_back(const GpuBuffer::Place& place, size_t bytes) noexcept {
  try {
    auto fence = memory_->fence();
    std::lock_guard lock(mutex_);
    returned_.push_back({place, bytes, std::move(fence)});
  } catch (...) {
    // The GPU has failed, or the process ends: this part is never reused.
  }
}

}  // namespace lsm::comm
