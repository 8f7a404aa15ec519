// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/inference/interval_edges.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/check.h"
#include "kernels/core/vector_clones.h"

namespace lsm {
namespace {

constexpr int64_t kMostInInterval = int64_t{1} << 32;
constexpr int64_t kAhead = 8;  // edges whose rows are fetched before they are needed
constexpr int64_t kLanes = 8;  // partial sums of a product, in a fixed order

/// First destination of each part, so that parts have about as many edges.
std::vector<int64_t> part_bounds(std::span<const int64_t> indptr, int64_t first, int64_t last,
                                 int64_t num_parts) {
  std::vector<int64_t> bounds{first};
  const auto begin = indptr.begin() + first;
  const auto end = indptr.begin() + last;
  for (int64_t p = 1; p < num_parts; ++p) {
    const int64_t edge = indptr[first] + (indptr[last] - indptr[first]) * p / num_parts;
    const int64_t node = first + (std::lower_bound(begin, end, edge) - begin);
    bounds.push_back(std::max(bounds.back(), node));
  }
  bounds.push_back(last);
  return bounds;
}

template <class Body>
void for_each_part(ThreadPool& pool, int64_t num_parts, const Body& body) {
  pool.parallel_for(num_parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) body(p);
  });
}

inline void prefetch_row(const float* row, int64_t width) {
  const char* bytes = reinterpret_cast<const char*>(row);
  for (int64_t b = 0; b < width * 4; b += 64) __builtin_prefetch(bytes + b);
}

LSM_VECTOR_CLONES
void add_rows(const uint32_t* sources, const uint32_t* targets, int64_t num_edges,
              const float* rows, int64_t width, float* reduced) {
  for (int64_t e = 0; e < num_edges; ++e) {
    if (e + kAhead < num_edges) prefetch_row(rows + sources[e + kAhead] * width, width);
    const float* row = rows + sources[e] * width;
    float* sum = reduced + targets[e] * width;
    for (int64_t i = 0; i < width; ++i) sum[i] += row[i];
  }
}

LSM_VECTOR_CLONES
void max_rows(const uint32_t* sources, const uint32_t* targets, int64_t num_edges,
              const float* rows, int64_t width, float* reduced) {
  for (int64_t e = 0; e < num_edges; ++e) {
    const float* row = rows + sources[e] * width;
    float* most = reduced + targets[e] * width;
    for (int64_t i = 0; i < width; ++i) {
      const bool stays = row[i] <= most[i] || most[i] != most[i];  // a NaN stays on either side
      most[i] = stays ? most[i] : row[i];
    }
  }
}

/// The score of an edge by the rows of its ends for one head.
inline float product_score(const float* source, const float* own, const float* weights,
                           int64_t channels, float slope) {
  float lanes[kLanes] = {};
  for (int64_t begin = 0; begin < channels; begin += kLanes) {
    const int64_t count = std::min(kLanes, channels - begin);
    for (int64_t i = 0; i < count; ++i) {
      const float sum = source[begin + i] + own[begin + i];
      lanes[i] += weights[begin + i] * (sum > 0 ? sum : sum * slope);
    }
  }
  float score = 0;
  for (const float lane : lanes) score += lane;
  return score;
}

LSM_VECTOR_CLONES
void attend_rows(const uint32_t* sources, const uint32_t* targets, int64_t num_edges,
                 const float* rows, const float* own, int64_t own_stride,
                 const Attention& attention, float* reduced) {
  const int64_t channels = attention.channels, num_values = attention.num_values();
  const int64_t width = attention.source_width();
  const float* weights = attention.weights.empty() ? nullptr : attention.weights.data();
  for (int64_t e = 0; e < num_edges; ++e) {
    if (e + kAhead < num_edges) prefetch_row(rows + sources[e + kAhead] * width, width);
    const float* row = rows + sources[e] * width;
    const float* mine = own + targets[e] * own_stride;
    float* sums = reduced + targets[e] * attention.reduced_width();
    float* highest = sums + num_values;
    float* totals = highest + attention.heads;
    for (int64_t h = 0; h < attention.heads; ++h) {
      const int64_t at = h * channels;
      float score = 0;
      if (weights != nullptr) {
        score = product_score(row + at, mine + at, weights + at, channels, attention.slope);
      } else {
        const float sum = row[num_values + h] + mine[h];
        score = sum > 0 ? sum : sum * attention.slope;
      }
      float weight = 1;
      if (score > highest[h]) {
        const float scale = std::exp(highest[h] - score);
        for (int64_t i = 0; i < channels; ++i) sums[at + i] *= scale;
        totals[h] *= scale;
        highest[h] = score;
      } else {
        weight = std::exp(score - highest[h]);
      }
      for (int64_t i = 0; i < channels; ++i) sums[at + i] += weight * row[at + i];
      totals[h] += weight;
    }
  }
}

}  // namespace

template <class Id>
IntervalEdges::IntervalEdges(ThreadPool& pool, std::span<const int64_t> indptr,
                             std::span<const Id> indices, int64_t first, int64_t last,
                             int64_t num_sources, int64_t batch_rows, bool one_loop)
    : num_destinations_(last - first),
      num_sources_(num_sources),
      batch_rows_(batch_rows),
      num_batches_(batch_rows > 0 ? (num_sources + batch_rows - 1) / batch_rows : 0),
      num_parts_(pool.num_threads()) {
  check_argument(batch_rows > 0 && batch_rows < kMostInInterval, "batch_rows: expected 1 to 2^32");
  check_argument(0 <= first && first <= last && last < static_cast<int64_t>(indptr.size()),
                 "interval: expected 0 <= first <= last < ", indptr.size(), ", got ", first, " to ",
                 last);
  check_argument(num_destinations_ < kMostInInterval, "interval: expected below 2^32 nodes");
  check_argument(!one_loop || last <= num_sources, "one_loop: expected destinations to be sources");
  check_argument(0 <= indptr[first] && indptr[last] <= static_cast<int64_t>(indices.size()),
                 "indptr: expected edges below ", indices.size());
  const std::vector<int64_t> bounds = part_bounds(indptr, first, last, num_parts_);
  // Counts by batch and part, then their running sum.
  std::vector<int64_t> next(num_batches_ * num_parts_, 0);
  for_each_part(pool, num_parts_, [&](int64_t p) {
    for (int64_t v = bounds[p]; v < bounds[p + 1]; ++v) {
      const int64_t begin = indptr[v], end = indptr[v + 1];
      check_argument(indptr[first] <= begin && begin <= end && end <= indptr[last],
                     "indptr: expected it to rise from ", indptr[first], " to ", indptr[last],
                     ", got ", begin, " and ", end, " for node ", v,
                     "; the topology is damaged: check it with `lsm data verify`");
      for (int64_t e = begin; e < end; ++e) {
        const int64_t source = indices[e];
        check_argument(source >= 0 && source < num_sources, "edge ", e, ": source ", source,
                       " is not a node: expected an id in [0, ", num_sources, ")");
        if (!one_loop || source != v) ++next[source / batch_rows * num_parts_ + p];
      }
      if (one_loop) ++next[v / batch_rows * num_parts_ + p];
    }
  });
  starts_.assign(next.size() + 1, 0);
  for (size_t i = 0; i < next.size(); ++i) starts_[i + 1] = starts_[i] + next[i];
  std::copy(starts_.begin(), starts_.end() - 1, next.begin());
  sources_.resize(starts_.back());
  targets_.resize(starts_.back());
  for_each_part(pool, num_parts_, [&](int64_t p) {
    std::vector<Id> sorted;
    for (int64_t v = bounds[p]; v < bounds[p + 1]; ++v) {
      sorted.assign(indices.begin() + indptr[v], indices.begin() + indptr[v + 1]);
      if (one_loop) {
        std::erase(sorted, static_cast<Id>(v));
        sorted.push_back(static_cast<Id>(v));
      }
      std::sort(sorted.begin(), sorted.end());
      for (const int64_t source : sorted) {
        const int64_t batch = source / batch_rows;
        const int64_t at = next[batch * num_parts_ + p]++;
        sources_[at] = static_cast<uint32_t>(source - batch * batch_rows);
        targets_[at] = static_cast<uint32_t>(v - first);
      }
    }
  });
}

int64_t IntervalEdges::num_rows(int64_t batch) const {
  check_argument(0 <= batch && batch < num_batches_, "batch: expected below ", num_batches_);
  return std::min(batch_rows_, num_sources_ - batch * batch_rows_);
}

/// Calls body(sources, targets, count) with the edges of each part of a batch.
template <class Body>
void IntervalEdges::for_each_slice(ThreadPool& pool, int64_t batch, const Body& body) const {
  for_each_part(pool, num_parts_, [&](int64_t p) {
    const int64_t begin = starts_[batch * num_parts_ + p];
    const int64_t end = starts_[batch * num_parts_ + p + 1];
    body(sources_.data() + begin, targets_.data() + begin, end - begin);
  });
}

void IntervalEdges::reduce(ThreadPool& pool, int64_t batch, std::span<const float> rows,
                           int64_t width, Reduction reduction, std::span<float> reduced) const {
  const int64_t count = num_rows(batch);
  check_argument(static_cast<int64_t>(rows.size()) >= count * width, "rows: expected ", count,
                 " rows of ", width);
  check_argument(static_cast<int64_t>(reduced.size()) == num_destinations_ * width,
                 "reduced: expected ", num_destinations_, " rows of ", width);
  const auto body = reduction == Reduction::kSum ? add_rows : max_rows;
  for_each_slice(pool, batch, [&](const uint32_t* sources, const uint32_t* targets, int64_t edges) {
    body(sources, targets, edges, rows.data(), width, reduced.data());
  });
}

void IntervalEdges::attend(ThreadPool& pool, int64_t batch, std::span<const float> rows,
                           std::span<const float> own, int64_t own_stride,
                           const Attention& attention, std::span<float> reduced) const {
  const int64_t count = num_rows(batch), width = attention.source_width();
  check_argument(attention.heads > 0 && attention.channels > 0,
                 "attention: expected a head of a value or more");
  check_argument(attention.weights.empty() ||
                     static_cast<int64_t>(attention.weights.size()) == attention.num_values(),
                 "weights: expected none or ", attention.num_values());
  check_argument(static_cast<int64_t>(rows.size()) >= count * width, "rows: expected ", count,
                 " rows of ", width);
  check_argument(own_stride >= attention.own_width() &&
                     static_cast<int64_t>(own.size()) == num_destinations_ * own_stride,
                 "own: expected ", num_destinations_, " rows of at least ", attention.own_width());
  check_argument(
      static_cast<int64_t>(reduced.size()) == num_destinations_ * attention.reduced_width(),
      "reduced: expected ", num_destinations_, " rows of ", attention.reduced_width());
  for_each_slice(pool, batch, [&](const uint32_t* sources, const uint32_t* targets, int64_t edges) {
    attend_rows(sources, targets, edges, rows.data(), own.data(), own_stride, attention,
                reduced.data());
  });
}

template IntervalEdges::IntervalEdges(ThreadPool&, std::span<const int64_t>,
                                      std::span<const int32_t>, int64_t, int64_t, int64_t, int64_t,
                                      bool);
template IntervalEdges::IntervalEdges(ThreadPool&, std::span<const int64_t>,
                                      std::span<const int64_t>, int64_t, int64_t, int64_t, int64_t,
                                      bool);

}  // namespace lsm
