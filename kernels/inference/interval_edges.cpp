// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/inference/interval_edges.h"

#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/core/vector_clones.h"

namespace lsm {
namespace {

constexpr int64_t kMostInInterval = int64_t{1} << 32;
constexpr int64_t kAhead = 8;  // edges whose rows are fetched before they are needed

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

LSM_VECTOR_CLONES
void add_rows(const uint32_t* sources, const uint32_t* targets, int64_t num_edges,
              const float* rows, int64_t width, float* reduced) {
  for (int64_t e = 0; e < num_edges; ++e) {
    if (e + kAhead < num_edges) {
      const char* next = reinterpret_cast<const char*>(rows + sources[e + kAhead] * width);
      for (int64_t b = 0; b < width * 4; b += 64) __builtin_prefetch(next + b);
    }
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
      for (int64_t e = indptr[v]; e < indptr[v + 1]; ++e) {
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

void IntervalEdges::reduce(ThreadPool& pool, int64_t batch, std::span<const float> rows,
                           int64_t width, Reduction reduction, std::span<float> reduced) const {
  check_argument(0 <= batch && batch < num_batches_, "batch: expected below ", num_batches_);
  const int64_t num_rows = std::min(batch_rows_, num_sources_ - batch * batch_rows_);
  check_argument(static_cast<int64_t>(rows.size()) >= num_rows * width, "rows: expected ", num_rows,
                 " rows of ", width);
  check_argument(static_cast<int64_t>(reduced.size()) == num_destinations_ * width,
                 "reduced: expected ", num_destinations_, " rows of ", width);
  const auto body = reduction == Reduction::kSum ? add_rows : max_rows;
  for_each_part(pool, num_parts_, [&](int64_t p) {
    const int64_t begin = starts_[batch * num_parts_ + p];
    const int64_t end = starts_[batch * num_parts_ + p + 1];
    body(sources_.data() + begin, targets_.data() + begin, end - begin, rows.data(), width,
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
