// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/order_search.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "kernels/core/check.h"

namespace lsm {
namespace {

// Close to the end the search tries all moves, before that the best few. An early mistake costs a
// restart; trying mends a late one.
constexpr int64_t kTailPairs = 16;
constexpr size_t kMovesEarly = 2;

struct Move {
  PartitionLoad load;
  int gain;
  double key;
};

/// A move is better the fewer pairs it wastes, the fewer uncovered pairs the evicted partition
/// leaves behind and the fewer the loaded one still has. Every restart draws the weights of the
/// three anew, because no fixed choice suits all shapes.
struct Weights {
  double evicted;
  double loaded;
  double noise;
};

class Search {
 public:
  Search(const OrderShape& shape, int64_t nodes)
      : shape_(shape), most_nodes_(nodes), covered_(shape.partitions * shape.partitions) {}

  bool run(uint64_t seed, int64_t waste) {
    random_.seed(seed);
    weights_ = {uniform(0, 4), uniform(-0.5, 3.5), uniform(0.1, 5)};
    reset();
    return descend(waste);
  }

  const std::vector<PartitionLoad>& turns() const { return turns_; }

 private:
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }

  void reset() {
    const int n = shape_.partitions, c = shape_.buffer, g = shape_.ranks;
    std::fill(covered_.begin(), covered_.end(), 0);
    missing_.assign(n, n - 1);
    free_from_.assign(n, 0);
    slots_.resize(g * c);
    newest_.assign(g, -1);
    turns_.clear();
    nodes_ = 0;
    left_ = static_cast<int64_t>(n) * (n - 1) / 2;
    for (int i = 0; i < g * c; ++i) {
      slots_[i] = i;
      free_from_[i] = kHeld;
    }
    for (int r = 0; r < g; ++r)
      for (int i = r * c; i < (r + 1) * c; ++i)
        for (int j = i + 1; j < (r + 1) * c; ++j) set_covered(i, j, true);
  }

  bool is_covered(int i, int j) const { return covered_[i * shape_.partitions + j] != 0; }

  void set_covered(int i, int j, bool value) {
    covered_[i * shape_.partitions + j] = covered_[j * shape_.partitions + i] = value;
    const int change = value ? -1 : 1;
    missing_[i] += change;
    missing_[j] += change;
    left_ += change;
  }

  /// The moves that the waste allows, best first. Moves without gain count only if no other is
  /// left: they bring partitions that have yet to meet closer.
  std::vector<Move> moves(int rank, int step, int64_t waste) {
    std::vector<Move> found;
    const int c = shape_.buffer;
    const int* held = &slots_[rank * c];
    for (int slot = 0; slot < c; ++slot) {
      if (slot == newest_[rank]) continue;
      for (int p = 0; p < shape_.partitions; ++p) {
        if (free_from_[p] > step) continue;
        int gain = 0;
        for (int other = 0; other < c; ++other)
          gain += other != slot && !is_covered(held[other], p);
        const int loss = c - 1 - gain;
        if (gain == 0 || (loss > waste && gain < left_)) continue;
        const double key = 50.0 * loss + weights_.evicted * missing_[held[slot]] +
                           weights_.loaded * missing_[p] + weights_.noise * uniform(0, 1);
        found.push_back({{slot, p}, gain, key});
      }
    }
    if (found.empty() && c - 1 <= waste) found = moves_without_gain(rank, step);
    std::sort(found.begin(), found.end(),
              [](const Move& a, const Move& b) { return a.key < b.key; });
    if (shape_.ranks > 1 && waste >= c - 1) found.push_back({{-1, -1}, 0, 0});
    return found;
  }

  /// A partition is better loaded the more of those that it has yet to meet are in no buffer, and
  /// better evicted the more of them other ranks hold, which can load it then.
  std::vector<Move> moves_without_gain(int rank, int step) {
    std::vector<std::pair<int, int>> free;  // partitions, and how many each could meet next
    for (int p = 0; p < shape_.partitions; ++p)
      if (free_from_[p] <= step) free.emplace_back(p, missing_in_no_buffer(p));
    std::vector<Move> found;
    for (int slot = 0; slot < shape_.buffer; ++slot) {
      if (slot == newest_[rank]) continue;
      const int held = slots_[rank * shape_.buffer + slot];
      const int near = missing_in_no_buffer(held), elsewhere = missing_[held] - near;
      for (const auto& [p, meets] : free) {
        const double key = near - elsewhere - meets + weights_.noise * uniform(0, 1);
        found.push_back({{slot, p}, 0, key});
      }
    }
    return found;
  }

  /// The partitions in no buffer that `p` has yet to meet.
  int missing_in_no_buffer(int p) const {
    if (missing_[p] == 0) return 0;
    int count = 0;
    for (int other = 0; other < shape_.partitions; ++other)
      count += other != p && free_from_[other] != kHeld && !is_covered(p, other);
    return count;
  }

  /// A lower bound of the pairs that the remaining loads waste. A visit of a partition covers
  /// buffer - 1 pairs when it is loaded and one more with the next load, unless no load follows. A
  /// partition outside with fewer pairs left meets another twice; two may share that.
  int64_t must_waste() const {
    int64_t shortage = 0;
    for (int v = 0; v < shape_.partitions; ++v)
      if (free_from_[v] != kHeld && missing_[v] > 0)
        shortage += std::max(0, shape_.buffer - missing_[v]);
    for (int rank = 0; rank < shape_.ranks; ++rank)
      if (newest_[rank] >= 0)
        shortage += missing_[slots_[rank * shape_.buffer + newest_[rank]]] == 0;
    return (shortage - shape_.ranks + 1) / 2;
  }

  bool descend(int64_t waste) {
    if (left_ == 0) return true;
    if (++nodes_ > most_nodes_ || must_waste() > waste) return false;
    const int turn = static_cast<int>(turns_.size());
    const int rank = turn % shape_.ranks, step = turn / shape_.ranks;
    const size_t most = left_ <= kTailPairs ? SIZE_MAX : kMovesEarly;
    size_t tried = 0;
    for (const Move& move : moves(rank, step, waste)) {
      if (tried++ == most || nodes_ > most_nodes_) return false;
      if (attempt(move, rank, step, waste)) return true;
    }
    return false;
  }

  bool attempt(const Move& move, int rank, int step, int64_t waste) {
    const int c = shape_.buffer;
    const int64_t left_waste = waste - (c - 1 - move.gain);
    turns_.push_back(move.load);
    if (move.load.slot < 0) {
      if (descend(left_waste)) return true;
      turns_.pop_back();
      return false;
    }
    const auto [slot, p] = move.load;
    int* held = &slots_[rank * c];
    std::vector<int> fresh;
    for (int other = 0; other < c; ++other)
      if (other != slot && !is_covered(held[other], p)) fresh.push_back(held[other]);
    for (int other : fresh) set_covered(other, p, true);
    const int evicted = held[slot], newest = newest_[rank], since = free_from_[p];
    held[slot] = p;
    newest_[rank] = slot;
    free_from_[p] = kHeld;
    free_from_[evicted] = step + 1;
    if (descend(left_waste)) return true;
    free_from_[evicted] = kHeld;
    free_from_[p] = since;
    newest_[rank] = newest;
    held[slot] = evicted;
    for (int other : fresh) set_covered(other, p, false);
    turns_.pop_back();
    return false;
  }

  static constexpr int kHeld = INT32_MAX;

  OrderShape shape_;
  int64_t most_nodes_;
  std::vector<char> covered_;   // [n * n]
  std::vector<int> missing_;    // [n] pairs of each partition that are not covered yet
  std::vector<int> free_from_;  // [n] step from which each may be loaded
  std::vector<int> slots_;      // [ranks * buffer]
  std::vector<int> newest_;     // [ranks] slot that was loaded last, or -1
  std::vector<PartitionLoad> turns_;
  std::mt19937_64 random_;
  Weights weights_{};
  int64_t nodes_ = 0;
  int64_t left_ = 0;  // pairs that are not covered yet
};

}  // namespace

std::optional<std::vector<PartitionLoad>> search_order(const OrderShape& shape, int64_t waste,
                                                       const OrderSearchLimits& limits) {
  const auto [n, c, g] = shape;
  check_argument(c >= 2 && g >= 1 && n >= 1 && n <= kMostPartitions && c <= n && g <= n / c,
                 "expected 2 <= buffer and ranks * buffer <= partitions <= ", kMostPartitions,
                 ", got partitions ", n, ", buffer ", c, ", ranks ", g);
  check_argument(waste >= 0 && limits.restarts >= 0 && limits.nodes >= 0,
                 "expected waste, restarts and nodes of at least 0");
  Search search(shape, limits.nodes);
  for (int64_t restart = 0; restart < limits.restarts; ++restart)
    if (search.run(limits.seed + static_cast<uint64_t>(restart), waste)) return search.turns();
  return std::nullopt;
}

}  // namespace lsm
