// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/softmax_loss.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/core/vector_clones.h"

namespace lsm {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kGrain = 32;  // edges a thread takes at once

/// exp(x) for x <= 0 with a relative error of 2e-7; 0 where the result would be denormal.
[[gnu::always_inline]] inline float exp_of_negative(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  constexpr float kShift = 12582912.0f;
  const float shifted = clamped * 1.44269504f + kShift;
  const float power = shifted - kShift;
  // log(2) in two parts: the first has few bits, so that its product with `power` is exact.
  const float rest = clamped - power * 0.693359375f + power * 2.12194440e-4f;
  float sum = 1.9875691500e-4f;
  sum = sum * rest + 1.3981999507e-3f;
  sum = sum * rest + 8.3334519073e-3f;
  sum = sum * rest + 4.1665795894e-2f;
  sum = sum * rest + 1.6666665459e-1f;
  sum = sum * rest + 5.0000001201e-1f;
  sum = sum * (rest * rest) + rest + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kShift);
  const float scale = std::bit_cast<float>((exponent + 127) << 23);
  return x < -87.0f ? 0.0f : sum * scale;
}

/// One edge: returns its loss.
LSM_VECTOR_CLONES
float softmax_row(float& positive, float* negatives, int64_t count) {
  alignas(64) float lane[kLanes];
  const int64_t whole = count - count % kLanes;
  for (int l = 0; l < kLanes; ++l) lane[l] = positive;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lane[l] = std::max(lane[l], negatives[i + l]);
  }
  for (int64_t i = whole; i < count; ++i) lane[0] = std::max(lane[0], negatives[i]);
  const float largest = *std::max_element(lane, lane + kLanes);

  for (int l = 0; l < kLanes; ++l) lane[l] = 0;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const float value = exp_of_negative(negatives[i + l] - largest);
      negatives[i + l] = value;
      lane[l] += value;
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    negatives[i] = exp_of_negative(negatives[i] - largest);
    lane[0] += negatives[i];
  }
  const float of_positive = exp_of_negative(positive - largest);
  const float total = std::accumulate(lane, lane + kLanes, of_positive);
  const float scale = 1 / total;
  for (int64_t i = 0; i < count; ++i) negatives[i] *= scale;
  const float loss = std::log(total) + (largest - positive);
  positive = of_positive * scale - 1;
  return loss;
}

}  // namespace

double softmax_loss(std::span<float> positives, float* negatives, int64_t num_negatives,
                    ThreadPool& pool) {
  std::vector<float> losses(positives.size());
  pool.parallel_for(
      static_cast<int64_t>(positives.size()), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          losses[i] = softmax_row(positives[i], negatives + i * num_negatives, num_negatives);
        }
      });
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

}  // namespace lsm
