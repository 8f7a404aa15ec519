// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/plan.h"

#include <algorithm>
#include <utility>

#include "cache/metadata_word.h"
#include "kernels/core/check.h"

namespace lsm::cache {
namespace {

/// Without a branch per request, since sources cannot be predicted.
void list_positions(std::span<const RowSource> source, RowSource wanted, int64_t count,
                    std::vector<int64_t>* positions) {
  positions->resize(static_cast<size_t>(count) + 1);
  int64_t* next = positions->data();
  for (size_t i = 0; i < source.size(); ++i) {
    *next = static_cast<int64_t>(i);
    next += source[i] == wanted ? 1 : 0;
  }
  positions->pop_back();
}

/// The counter of a source.
int64_t& counter_of(Counters& counters, RowSource source) {
  switch (source) {
    case RowSource::kStatic:
      return counters.static_hits;
    case RowSource::kCache:
      return counters.hits;
    case RowSource::kVictim:
      return counters.victim_hits;
    case RowSource::kConstant:
      return counters.constant_hits;
    default:
      return counters.misses;
  }
}

}  // namespace

std::vector<Counters> Plan::count_by_range(std::span<const int64_t> ends,
                                           std::span<const int32_t> row_of) const {
  std::vector<Counters> counts(ends.size());
  const auto of_id = [&](size_t i) -> Counters& {
    const auto range = std::ranges::upper_bound(ends, ids[i]) - ends.begin();
    check_argument(range < std::ssize(ends), "ends: expected one above ", ids[i]);
    return counts[static_cast<size_t>(range)];
  };
  for (size_t i = 0; i < ids.size(); ++i) ++counter_of(of_id(i), source[i]);
  if (row_of.empty()) {
    for (Counters& each : counts) {
      each.requests =
          each.hits + each.static_hits + each.victim_hits + each.constant_hits + each.misses;
    }
  }
  for (const int32_t row : row_of) ++of_id(static_cast<size_t>(row)).requests;
  return counts;
}

void Plan::count_sources() {
  int64_t counts[256] = {};
  for (const RowSource source : this->source) ++counts[static_cast<uint8_t>(source)];
  const auto count_of = [&](RowSource source) { return counts[static_cast<uint8_t>(source)]; };
  counters.requests = static_cast<int64_t>(source.size());
  counters.static_hits = count_of(RowSource::kStatic);
  counters.hits = count_of(RowSource::kCache);
  counters.victim_hits = count_of(RowSource::kVictim);
  counters.constant_hits = count_of(RowSource::kConstant);
  counters.misses = count_of(RowSource::kStorage);
  list_positions(source, RowSource::kStorage, counters.misses, &miss_position);
  miss_id.resize(ids.empty() ? 0 : miss_position.size());
  for (size_t i = 0; i < miss_id.size(); ++i) miss_id[i] = ids[miss_position[i]];
  if (slot.size() != source.size()) return;
  list_positions(source, RowSource::kVictim, counters.victim_hits, &victim_position);
  victim_slot.resize(victim_position.size());
  for (size_t i = 0; i < victim_slot.size(); ++i) victim_slot[i] = slot[victim_position[i]];
}

void Plan::list() {
  if (on_gpu == nullptr || is_listed_) return;
  is_listed_ = true;
  GpuMoves::Listed listed = on_gpu->list();
  ids = std::move(listed.ids);
  slot = std::move(listed.slot);
  miss_position.assign(listed.miss_position.begin(), listed.miss_position.end());
  leaving_slot = std::move(listed.leaving_slot);
  leaving_word.resize(leaving_slot.size());
  for (size_t i = 0; i < leaving_slot.size(); ++i) {
    leaving_word[i] = leaving_slot[i] < 0 ? 0 : static_cast<int64_t>(kUnknownUse);
  }
  add_moves(listed.line.size(), [&](size_t i) {
    return Move{listed.position[i], listed.line[i], listed.evicts[i] != 0};
  });
}

}  // namespace lsm::cache
