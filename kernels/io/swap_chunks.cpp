// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/swap_chunks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/checksum.h"

namespace lsm {
namespace {

constexpr int64_t kPageBytes = 4096;

}  // namespace

SwapChunks::SwapChunks(const Swap& swap, int64_t chunk_bytes, int64_t block_bytes,
                       std::string target)
    : swap_(swap),
      chunk_bytes_(chunk_bytes),
      block_bytes_(block_bytes),
      count_((swap.bytes + chunk_bytes - 1) / chunk_bytes),
      target_(std::move(target)),
      sums_(static_cast<size_t>(count_)) {}

SwapChunk SwapChunks::start(int64_t index) {
  SwapChunk chunk;
  chunk.index = index;
  chunk.memory = swap_.memory + index * chunk_bytes_;
  chunk.bytes = std::min(chunk_bytes_, swap_.bytes - index * chunk_bytes_);
  begin(chunk, swap_.write_to.has_value());
  return chunk;
}

void SwapChunks::begin(SwapChunk& chunk, bool writes) {
  chunk.writes = writes;
  chunk.done = 0;
  chunk.was_futile = false;
  chunk.offset = (writes ? *swap_.write_to : *swap_.read_from) + chunk.index * chunk_bytes_;
  if (writes) sums_[static_cast<size_t>(chunk.index)].written = sum(chunk);
}

bool SwapChunks::advance(SwapChunk& chunk, int64_t result) {
  if (failed()) return false;
  if (result == -EINTR || result == -EAGAIN) return true;
  // Direct transfers continue at a block boundary; a short one may have ended within a block. A
  // file that ends within this block brings the same part of it each time.
  const int64_t whole =
      result == chunk.bytes_left() ? result : result / block_bytes_ * block_bytes_;
  const bool is_futile = whole == 0;
  if (result <= 0 || (is_futile && chunk.was_futile)) {
    const int number = result < 0 ? static_cast<int>(-result) : EIO;
    const char* why = result < 0    ? std::strerror(number)
                      : result == 0 ? "nothing was transferred"
                                    : "less than a block was transferred, twice";
    fail(std::make_exception_ptr(
        SystemError(number, target_,
                    concat(chunk.writes ? "write" : "read", " of ", chunk.bytes_left(),
                           " bytes at offset ", chunk.position(), ": ", why))));
    return false;
  }
  chunk.was_futile = is_futile;
  chunk.done += whole;
  if (chunk.done < chunk.bytes) return true;
  if (chunk.writes) {
    if (!swap_.read_from) return false;
    begin(chunk, false);
    return true;
  }
  sums_[static_cast<size_t>(chunk.index)].read = sum(chunk);
  return false;
}

uint64_t SwapChunks::sum(const SwapChunk& chunk) const {
  // By pages, each with its place, so that neither the size of chunks nor their order matters, and
  // the sums of parts of a block add up.
  uint64_t total = 0;
  const int64_t first = swap_.first_page + chunk.index * chunk_bytes_ / kPageBytes;
  for (int64_t page = 0; page < chunk.bytes / kPageBytes; ++page) {
    total += checksum64(chunk.memory + page * kPageBytes, kPageBytes,
                        static_cast<uint64_t>(first + page));
  }
  return total;
}

void SwapChunks::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  failed_.store(true);
}

SwapSums SwapChunks::finish() const {
  if (error_) std::rethrow_exception(error_);
  SwapSums total;
  for (const SwapSums& sums : sums_) {
    total.written += sums.written;
    total.read += sums.read;
  }
  return total;
}

}  // namespace lsm
