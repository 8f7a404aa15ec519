// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// One edge per warp. It reads its scores twice: a row of 1,000 stays in the GPU's cache.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/embed/gpu_losses.h"

namespace lsm {

/// A sum of exponentials of which the largest is 1.
struct ScaledSum {
  float largest;
  float sum;

  LSM_HOST_DEVICE void add(float score) {
    if (score > largest) {
      sum = sum * std::exp(largest - score) + 1;
      largest = score;
    } else {
      sum += std::exp(score - largest);
    }
  }
};

/// The shift of the scores of one edge.
class PartitionShift {
 public:
  LSM_HOST_DEVICE PartitionShift(const OwnPartition& own, int64_t row)
      : first_(own.firsts ? own.firsts[row] : 0),
        rows_(own.firsts ? static_cast<uint32_t>(own.rows) : 0),
        shift_(own.shift) {}

  LSM_HOST_DEVICE float of(int32_t entity) const {
    return static_cast<uint32_t>(entity) - static_cast<uint32_t>(first_) < rows_ ? shift_ : 0.0f;
  }

 private:
  int32_t first_;
  uint32_t rows_;
  float shift_;
};

struct SoftmaxLoss {
  ScoredEdges edges;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    float* const scores = edges.scores + row * edges.num_negatives;
    const int32_t* const ids = edges.negatives + row / edges.chunk * edges.num_negatives;
    const int32_t own = edges.targets[row];
    const PartitionShift shift(edges.own, row);
    const float positive = edges.positives[row] + shift.of(own);
    typename Lanes::template Var<float> largest, sums;
    lanes.each([&](int lane) {
      // One lane has the edge itself; the lowest number keeps the others' exponents finite.
      ScaledSum sum{lane == 0 ? positive : -FLT_MAX, lane == 0 ? 1.0f : 0.0f};
      for (int64_t k = lane; k < edges.num_negatives; k += Lanes::kLanes) {
        if (ids[k] != own) sum.add(scores[k] + shift.of(ids[k]));
      }
      largest[lane] = sum.largest;
      sums[lane] = sum.sum;
    });
    const float most = lanes.max(largest);
    lanes.each([&](int lane) { sums[lane] *= std::exp(largest[lane] - most); });
    const float total = lanes.sum(sums);
    const float scale = 1 / total;
    lanes.each([&](int lane) {
      for (int64_t k = lane; k < edges.num_negatives; k += Lanes::kLanes) {
        const float score = scores[k] + shift.of(ids[k]);
        scores[k] = ids[k] == own ? 0.0f : std::exp(score - most) * scale;
      }
      if (lane == 0) {
        edges.losses[row] = std::log(total) + (most - positive);
        edges.positives[row] = std::exp(positive - most) * scale - 1;
      }
    });
  }
};

/// Losses that are sums over the negatives.
template <EdgeLoss kLoss>
struct MeanLoss {
  ScoredEdges edges;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    float* const scores = edges.scores + row * edges.num_negatives;
    const int32_t* const ids = edges.negatives + row / edges.chunk * edges.num_negatives;
    const int32_t own = edges.targets[row];
    const float positive = edges.positives[row] + edges.shift;
    const float weight = 1 / static_cast<float>(edges.num_negatives);
    typename Lanes::template Var<float> losses, gradients;
    lanes.each([&](int lane) {
      float loss = 0, sum = 0;
      for (int64_t k = lane; k < edges.num_negatives; k += Lanes::kLanes) {
        float gradient = 0;
        if (ids[k] != own) loss += negative(scores[k], positive, gradient);
        scores[k] = gradient * weight;
        sum += gradient;
      }
      losses[lane] = loss;
      gradients[lane] = sum;
    });
    const float loss = lanes.sum(losses) * weight;
    const float sum = lanes.sum(gradients) * weight;
    lanes.each([&](int lane) {
      if (lane != 0) return;
      if constexpr (kLoss == EdgeLoss::kLogistic) {
        edges.losses[row] = loss + softplus(-positive);
        edges.positives[row] = -sigmoid(-positive);
      } else {
        edges.losses[row] = loss;
        edges.positives[row] = -sum;
      }
    });
  }

 private:
  LSM_HOST_DEVICE float negative(float score, float positive, float& gradient) const {
    if constexpr (kLoss == EdgeLoss::kLogistic) {
      gradient = sigmoid(score + edges.shift);
      return softplus(score + edges.shift);
    }
    const float short_of = score + edges.shift + (edges.margin - positive);
    gradient = short_of > 0 ? 1.0f : 0.0f;
    return short_of > 0 ? short_of : 0.0f;
  }
  LSM_HOST_DEVICE static float softplus(float x) {
    return (x > 0 ? x : 0.0f) + std::log1p(std::exp(-std::abs(x)));
  }
  LSM_HOST_DEVICE static float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
};

}  // namespace lsm
