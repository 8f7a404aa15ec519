// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "cache/simulate.h"
#include "cache/trace_uses.h"

namespace lsm::cache {
namespace {

/// A line in its state after a touch.
struct Entry {
  uint32_t next_use;
  uint32_t way;

  /// Evicted later than `other`: nearer next use, highest way on ties.
  bool operator<(const Entry& other) const {
    if (next_use != other.next_use) {
      return next_use_rank(next_use) > next_use_rank(other.next_use);
    }
    return way > other.way;
  }
};

/// All lines in order of eviction. A line that is hit keeps its old entry, whose next use is then
/// past. The entry sinks below those of all evictable lines and is dropped from time to time.
class EvictionOrder {
 public:
  /// Adds the lines touched at t, which were not evictable until now.
  void add(std::vector<Entry>* touched, uint32_t t, size_t num_lines) {
    if (entries_.size() > 2 * num_lines) {
      std::erase_if(entries_, [t](const Entry& entry) { return is_past(entry, t); });
      std::make_heap(entries_.begin(), entries_.end());
    }
    for (const Entry& entry : *touched) {
      entries_.push_back(entry);
      std::push_heap(entries_.begin(), entries_.end());
    }
    touched->clear();
  }

  /// The entry of the line to evict first at t, or null if none can be evicted.
  const Entry* first(uint32_t t) const {
    return entries_.empty() || is_past(entries_.front(), t) ? nullptr : &entries_.front();
  }

  void pop() {
    std::pop_heap(entries_.begin(), entries_.end());
    entries_.pop_back();
  }

 private:
  static bool is_past(const Entry& entry, uint32_t t) {
    return entry.next_use != kNoNextUse && entry.next_use <= t;
  }

  std::vector<Entry> entries_;
};

/// The state of the simulation: ids are their numbers in the trace.
struct BeladyLines {
  static constexpr int64_t kNoWay = -1;

  int64_t num_lines;
  std::vector<int64_t> way_of;     // by number
  std::vector<int64_t> number_at;  // by way; grows to num_lines
  EvictionOrder order;
  std::vector<Entry> touched;

  void insert(int64_t number, uint32_t next_use, uint32_t t, Counters* counters) {
    int64_t way = static_cast<int64_t>(number_at.size());
    if (way < num_lines) {
      number_at.push_back(number);
    } else {
      const Entry* victim = order.first(t);
      if (victim == nullptr || next_use_rank(next_use) <= next_use_rank(victim->next_use)) {
        ++counters->bypasses;
        return;
      }
      ++counters->evictions;
      way = victim->way;
      order.pop();
      way_of[number_at[way]] = kNoWay;
      number_at[way] = number;
    }
    way_of[number] = way;
    touched.push_back({next_use, static_cast<uint32_t>(way)});
  }
};

}  // namespace

std::vector<Counters> simulate_belady(Batches batches, int64_t num_lines, const IdMap& static_ids,
                                      const IdMap& constant_ids) {
  const IdMap numbers = number_ids(batches);
  const auto uses = next_uses(batches, numbers);
  BeladyLines cache;
  cache.num_lines = num_lines;
  cache.way_of.assign(numbers.size(), BeladyLines::kNoWay);
  std::vector<Counters> all(batches.size());
  std::vector<size_t> missing;
  for (size_t b = 0; b < batches.size(); ++b) {
    const uint32_t t = static_cast<uint32_t>(b);
    Counters& counters = all[b];
    counters.requests = static_cast<int64_t>(batches[b].size());
    missing.clear();
    for (size_t i = 0; i < batches[b].size(); ++i) {
      const int64_t id = batches[b][i];
      const int64_t way = cache.way_of[numbers.find(id)];
      if (way != BeladyLines::kNoWay) {
        ++counters.hits;
        cache.touched.push_back({uses[b][i], static_cast<uint32_t>(way)});
      } else if (static_ids.find(id) >= 0) {
        ++counters.static_hits;
      } else if (constant_ids.find(id) >= 0) {
        ++counters.constant_hits;
      } else {
        ++counters.misses;
        missing.push_back(i);
      }
    }
    for (const size_t i : missing) {
      cache.insert(numbers.find(batches[b][i]), uses[b][i], t, &counters);
    }
    cache.order.add(&cache.touched, t, static_cast<size_t>(num_lines));
  }
  return all;
}

}  // namespace lsm::cache
