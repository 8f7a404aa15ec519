// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/transfers.h"

#include <utility>

#include "kernels/core/check.h"

namespace lsm {

Transfers::Transfers(std::string engine, std::string target, const TransferOptions& options)
    : engine_(std::move(engine)), target_(std::move(target)), options_(options) {
  check_argument(options.queue_depth >= 1 && options.queue_depth <= 4096,
                 "storage.queue_depth: expected 1 to 4096, got ", options.queue_depth);
}

SwapSums Transfers::swap(const Swap& swap, double timeout_secs) {
  const int64_t block = block_bytes();
  const auto is_aligned = [block](int64_t value) { return value >= 0 && value % block == 0; };
  check_argument(options_.chunk_bytes >= block && is_aligned(options_.chunk_bytes),
                 "storage.chunk_bytes: expected a multiple of ", block, ", got ",
                 options_.chunk_bytes);
  check_argument(reinterpret_cast<uintptr_t>(swap.memory) % static_cast<uintptr_t>(block) == 0 &&
                     is_aligned(swap.bytes) && is_aligned(swap.write_to.value_or(0)) &&
                     is_aligned(swap.read_from.value_or(0)),
                 "swap: expected memory, length and offsets that are multiples of ", block);
  check_argument(swap.write_to || swap.read_from, "swap: expected an offset to write or to read");
  check_argument(!options_.read_only || !swap.write_to, "swap: expected no write to ", target_,
                 ", which was opened for reading");
  const std::lock_guard lock(mutex_);
  if (given_up_) {
    throw std::runtime_error(
        concat(engine_, ": ", target_, " failed before; it is not used any more"));
  }
  SwapChunks chunks(swap, chunk_bytes(), block, target_);
  try {
    run(chunks, Deadline(timeout_secs));
  } catch (const TimeoutError&) {
    given_up_ = true;  // transfers may still be in flight
    throw TimeoutError(concat(engine_, ": ", target_, ": ", swap.bytes, " bytes were not moved in ",
                              timeout_secs, " s (storage.timeout_secs)"));
  } catch (...) {
    given_up_ = true;
    throw;
  }
  return chunks.finish();
}

Transfers::Next Transfers::complete(SwapChunks& chunks, SwapChunk& chunk, int64_t result) {
  bool stalled = false;
  result = faults_.apply(result, &stalled);
  if (stalled) return Next::kLost;
  if (result > 0) {
    (chunk.writes ? stats_.bytes_written : stats_.bytes_read).fetch_add(result);
    if (result < chunk.bytes_left()) stats_.short_transfers.fetch_add(1);
  }
  return chunks.advance(chunk, result) ? Next::kAgain : Next::kEnd;
}

void Transfers::count_batch(int64_t commands) {
  stats_.commands.fetch_add(commands);
  stats_.doorbells.fetch_add(1);
}

}  // namespace lsm
