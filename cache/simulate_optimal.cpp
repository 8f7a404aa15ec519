// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <vector>

#include "cache/id_map.h"
#include "cache/policy/line.h"
#include "cache/simulate.h"
#include "kernels/core/check.h"

namespace lsm::cache {
namespace {

/// Numbers of the distinct ids of a trace, in first-seen order. Throws ArgumentError if an id is
/// negative or repeated in a batch.
IdMap number_ids(Batches batches) {
  size_t count = 0;
  for (const auto& batch : batches) count += batch.size();
  IdMap numbers;
  numbers.reset(static_cast<int64_t>(count));
  std::vector<size_t> last_batch;  // by number: 1 + the last batch that contains it
  for (size_t b = 0; b < batches.size(); ++b) {
    for (const int64_t id : batches[b]) {
      check_argument(id >= 0, "ids: expected ids >= 0, got ", id, " in batch ", b);
      if (numbers.insert(id, numbers.size())) last_batch.push_back(0);
      size_t& last = last_batch[numbers.find(id)];
      check_argument(last != b + 1, "ids: expected distinct ids in batch ", b, ", got ", id,
                     " twice");
      last = b + 1;
    }
  }
  return numbers;
}

/// For each request of a trace, the next batch that contains its id.
std::vector<std::vector<uint32_t>> next_uses(Batches batches, const IdMap& numbers) {
  std::vector<uint32_t> next(numbers.size(), kNoNextUse);
  std::vector<std::vector<uint32_t>> uses(batches.size());
  for (size_t b = batches.size(); b-- > 0;) {
    uses[b].reserve(batches[b].size());
    for (const int64_t id : batches[b]) {
      uint32_t& later = next[numbers.find(id)];
      uses[b].push_back(later);
      later = static_cast<uint32_t>(b);
    }
  }
  return uses;
}

/// The kept rows, as numbers in the trace, by next use.
class KeptRows {
 public:
  KeptRows(size_t num_batches, int64_t num_ids) : by_next_use_(num_batches), is_kept_(num_ids) {}

  bool contains(int64_t number) const { return is_kept_[number]; }
  int64_t size() const { return size_; }

  void add(int64_t number, uint32_t next_use) {
    by_next_use_[next_use].push_back(number);
    is_kept_[number] = true;
    farthest_ = std::max(farthest_, next_use);
    ++size_;
  }

  /// Removes the rows that iteration t requests.
  void serve(uint32_t t) {
    while (!by_next_use_[t].empty()) take_last(t);
  }

  /// Drops a row with the farthest next use, and returns it.
  int64_t drop_farthest() {
    while (by_next_use_[farthest_].empty()) --farthest_;
    return take_last(farthest_);
  }

 private:
  int64_t take_last(uint32_t next_use) {
    const int64_t number = by_next_use_[next_use].back();
    by_next_use_[next_use].pop_back();
    is_kept_[number] = false;
    --size_;
    return number;
  }

  std::vector<std::vector<int64_t>> by_next_use_;
  std::vector<bool> is_kept_;
  uint32_t farthest_ = 0;  // no row is requested later
  int64_t size_ = 0;
};

}  // namespace

std::vector<Counters> simulate_optimal(Batches batches, int64_t num_lines, const IdMap& static_ids,
                                       const IdMap& constant_ids) {
  const IdMap numbers = number_ids(batches);
  const auto uses = next_uses(batches, numbers);
  KeptRows kept(batches.size(), numbers.size());
  std::vector<uint32_t> missed_at(numbers.size());  // 1 + the iteration of the last miss
  std::vector<Counters> all(batches.size());
  for (size_t b = 0; b < batches.size(); ++b) {
    const uint32_t t = static_cast<uint32_t>(b);
    Counters& counters = all[b];
    counters.requests = static_cast<int64_t>(batches[b].size());
    std::vector<size_t> rows;  // positions of candidates to keep
    for (size_t i = 0; i < batches[b].size(); ++i) {
      const int64_t id = batches[b][i];
      if (static_ids.find(id) >= 0) {
        ++counters.static_hits;
      } else if (constant_ids.find(id) >= 0) {
        ++counters.constant_hits;
      } else {
        rows.push_back(i);
      }
    }
    for (const size_t i : rows) {
      const int64_t number = numbers.find(batches[b][i]);
      const bool is_hit = kept.contains(number);
      ++(is_hit ? counters.hits : counters.misses);
      if (!is_hit) missed_at[number] = t + 1;
    }
    kept.serve(t);
    for (const size_t i : rows) {
      const int64_t number = numbers.find(batches[b][i]);
      if (uses[b][i] != kNoNextUse) {
        kept.add(number, uses[b][i]);
      } else {
        ++(missed_at[number] == t + 1 ? counters.bypasses : counters.evictions);
      }
    }
    while (kept.size() > num_lines) {
      const int64_t number = kept.drop_farthest();
      ++(missed_at[number] == t + 1 ? counters.bypasses : counters.evictions);
    }
  }
  return all;
}

}  // namespace lsm::cache
