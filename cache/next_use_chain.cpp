// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/next_use_chain.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include "cache/pipelined.h"
#include "kernels/core/check.h"

namespace lsm::cache {
namespace {

uint64_t hash_of(int64_t id) {
  return mix64(static_cast<uint64_t>(id));
}

}  // namespace

void check_ids(std::span<const int64_t> ids, int64_t num_nodes) {
  const int64_t end = num_nodes < 0 ? INT64_MAX : num_nodes;
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [end](int64_t id) { return id < 0 || id >= end; });
  if (bad == ids.end()) return;
  const std::string expected = num_nodes < 0 ? ">= 0" : concat("in [0, ", end, ")");
  throw ArgumentError(
      concat("ids: expected ids ", expected, ", got ", *bad, " at position ", bad - ids.begin()));
}

void throw_repeated(std::span<const int64_t> ids, int64_t b) {
  std::unordered_map<int64_t, size_t> seen;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto [first, is_new] = seen.try_emplace(ids[i], i);
    if (is_new) continue;
    throw ArgumentError(concat("ids: expected distinct ids in batch ", b, ", got ", ids[i],
                               " at positions ", first->second, " and ", i));
  }
  throw std::logic_error(concat("ids: none is repeated in batch ", b));
}

std::span<const uint32_t> NextUseChain::push(std::span<const int64_t> ids) {
  latest_.reserve(latest_.size() + static_cast<int64_t>(ids.size()),
                  [this](uint32_t index) { return hash_of(at(index).id()); });
  const uint32_t first = open_batch(ids).first_index;
  previous_.resize(ids.size());
  unlinked_.clear();
  uint64_t hashes[kUnderWay];
  const auto request = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      hashes[i % kUnderWay] = hash_of(ids[i]);
      latest_.prefetch(hashes[i % kUnderWay]);
    }
  };
  const auto locate = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      previous_[i] = latest_.likely_index(hashes[i % kUnderWay]);
      if (previous_[i] >= 0) __builtin_prefetch(&at(static_cast<uint32_t>(previous_[i])), 1);
    }
  };
  const auto finish = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) link(ids, i, hashes[i % kUnderWay], first);
  };
  run_pipelined(ids.size(), request, locate, finish);
  return unlinked_;
}

/// Enters ids[i] of the last batch, whose first occurrence is `first`.
void NextUseChain::link(std::span<const int64_t> ids, size_t i, uint64_t hash, uint32_t first) {
  const uint32_t number = static_cast<uint32_t>(end_batch() - 1);
  const uint32_t index = first + static_cast<uint32_t>(i);
  const auto place = latest_.find(hash, [&](uint32_t other) { return at(other).id() == ids[i]; });
  if (place.slot < 0) {
    latest_.insert(hash, index);
    unlinked_.push_back(static_cast<uint32_t>(i));
    previous_[i] = -1;
    return;
  }
  uint32_t& latest = latest_.index_at(place);
  const uint32_t offset = latest - first;
  if (offset < static_cast<uint32_t>(i)) {
    undo(ids, i);
    throw_repeated(ids, number);
  }
  previous_[i] = latest;
  at(latest).next_distance = index - latest;
  latest = index;
}

/// Makes room for a batch of `ids`, with no next uses.
NextUseChain::Batch& NextUseChain::open_batch(std::span<const int64_t> ids) {
  const uint32_t added = num_blocks(ids.size());
  const uint32_t live_blocks = end_block_ - first_block_;
  check_argument(live_blocks + added < kMaxBlocks,
                 "cache.window: at most 2^32 ids fit into the window; make it smaller");
  if (live_blocks + added > blocks_.size()) {
    std::vector<Block> larger(std::bit_ceil(live_blocks + added));
    for (uint32_t number = first_block_; number != end_block_; ++number) {
      larger[number & (larger.size() - 1)] = block(number);
    }
    blocks_ = std::move(larger);
  }
  Batch& batch = batches_.emplace_back();
  batch.first_index = end_block_ * kBlockSize;
  batch.occurrences = {slabs_.push_back(ids.size()), ids.size()};
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t id = static_cast<uint64_t>(ids[i]);
    batch.occurrences[i] = {static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), 0};
  }
  const uint32_t number = static_cast<uint32_t>(end_batch() - 1);
  for (uint32_t i = 0; i < added; ++i) {
    block(end_block_++) = {batch.occurrences.data() + int64_t{i} * kBlockSize, number,
                           i * kBlockSize};
  }
  num_entries_ += ids.size();
  return batch;
}

/// Removes the last batch, whose first `count` ids are linked.
void NextUseChain::undo(std::span<const int64_t> ids, int64_t count) {
  for (int64_t i = count - 1; i >= 0; --i) {
    const uint64_t hash = hash_of(ids[i]);
    const auto place = latest_.find(hash, [&](uint32_t other) { return at(other).id() == ids[i]; });
    if (previous_[i] < 0) {
      latest_.erase(hash, place);
    } else {
      latest_.index_at(place) = static_cast<uint32_t>(previous_[i]);
      at(static_cast<uint32_t>(previous_[i])).next_distance = 0;
    }
  }
  end_block_ -= num_blocks(ids.size());
  num_entries_ -= ids.size();
  slabs_.pop_back(ids.size());
  batches_.pop_back();
}

void NextUseChain::read(int64_t b, size_t begin, size_t end, Access* accesses) const {
  const Batch& batch = batches_[static_cast<size_t>(b - first_batch_)];
  for (size_t i = begin; i < end; ++i) {
    const Occurrence& occurrence = batch.occurrences[i];
    accesses[i] = {occurrence.id(), kNoNextUse, 0};
    if (occurrence.next_distance == 0) continue;
    const uint32_t next = batch.first_index + static_cast<uint32_t>(i) + occurrence.next_distance;
    const Block& place = block(next / kBlockSize);
    accesses[i].next_use = place.batch;
    accesses[i].next_position = place.first_position + next % kBlockSize;
  }
}

void NextUseChain::retire() {
  const Batch& batch = batches_.front();
  const std::span<const Occurrence> occurrences = batch.occurrences;
  const size_t count = occurrences.size();
  for (size_t begin = 0; begin < count; begin += kGroup) {
    const size_t end = std::min(begin + kGroup, count);
    // For an id with a next use, the table has that occurrence.
    for (size_t i = begin; i < end; ++i) {
      if (occurrences[i].next_distance == 0) latest_.prefetch(hash_of(occurrences[i].id()));
    }
    for (size_t i = begin; i < end; ++i) {
      if (occurrences[i].next_distance != 0) continue;
      const uint32_t index = batch.first_index + static_cast<uint32_t>(i);
      const uint64_t hash = hash_of(occurrences[i].id());
      latest_.erase(hash, latest_.find(hash, [&](uint32_t other) { return other == index; }));
    }
  }
  first_block_ += num_blocks(count);
  num_entries_ -= count;
  slabs_.pop_front();
  batches_.pop_front();
  ++first_batch_;
}

int64_t NextUseChain::num_bytes() const {
  return latest_.num_bytes() + slabs_.num_bytes() + blocks_.capacity() * sizeof(Block) +
         batches_.size() * sizeof(Batch);
}

}  // namespace lsm::cache
