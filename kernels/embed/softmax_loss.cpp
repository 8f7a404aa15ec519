// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/softmax_loss.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/core/vector_clones.h"

namespace lsm {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kGrain = 32;  // edges a thread takes at once
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Vectors of the compiler: it leaves the maximum over an array of lanes in scalars.
using Floats [[gnu::vector_size(4 * kLanes)]] = float;
using FloatsInRow [[gnu::vector_size(4 * kLanes), gnu::aligned(4), gnu::may_alias]] = float;
using Ints [[gnu::vector_size(4 * kLanes)]] = int32_t;

/// x = exp(x) for x <= 0 with a relative error of 2e-7; 0 where the result would be denormal.
[[gnu::always_inline]] inline void exp_of_negative(Floats& x) {
  constexpr float kLeast = -87.0f;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits; 127 more are the exponent's bias.
  constexpr float kShift = 12582912.0f + 127.0f;
  const Floats shifted = x * 1.44269504f + kShift;
  const Floats power = shifted - kShift;
  // log(2) in two parts: the first has few bits, so that its product with `power` is exact.
  const Floats rest = x - power * 0.693359375f + power * 2.12194440e-4f;
  // The polynomial of degree 6 with the least relative error, 3e-9, for |rest| <= log(2) / 2.
  Floats sum = rest * 1.38145988e-3f + 8.36871658e-3f;
  sum = sum * rest + 4.16683890e-2f;
  sum = sum * rest + 1.66665211e-1f;
  sum = sum * rest + 4.99999940e-1f;
  sum = sum * rest + 1.0f;
  sum = sum * rest + 1.0f;
  const Floats value = sum * reinterpret_cast<Floats>(reinterpret_cast<Ints>(shifted) << 23);
  x = x < kLeast ? Floats{} : value;  // -inf and others too low made `value` any number
}

[[gnu::always_inline]] inline void keep_larger(Floats& most, const Floats& other) {
  most = other > most ? other : most;
}

/// One edge: returns its loss.
LSM_VECTOR_CLONES
float softmax_row(float& positive, float* negatives, int64_t count) {
  const int64_t whole = count - count % kLanes;
  // The floats beyond whole vectors, and the positive. Their padding adds 0 to the sum.
  alignas(64) float padded[2 * kLanes];
  std::fill_n(padded, 2 * kLanes, kLowest);
  std::copy(negatives + whole, negatives + count, padded);
  padded[kLanes] = positive;
  FloatsInRow* vectors = reinterpret_cast<FloatsInRow*>(negatives);  // auto would align it
  FloatsInRow* rest = reinterpret_cast<FloatsInRow*>(padded);
  const int64_t num_vectors = whole / kLanes;

  // Several maxima, because each awaits the one before.
  Floats maxima[] = {rest[0], rest[1], rest[0], rest[1]};
  const int64_t in_fours = num_vectors - num_vectors % 4;
  for (int64_t i = 0; i < in_fours; i += 4) {
    for (int j = 0; j < 4; ++j) keep_larger(maxima[j], Floats(vectors[i + j]));
  }
  for (int64_t i = in_fours; i < num_vectors; ++i) keep_larger(maxima[0], Floats(vectors[i]));
  for (int j = 1; j < 4; ++j) keep_larger(maxima[0], maxima[j]);
  const Floats most = maxima[0];
  float largest = most[0];
  for (int l = 1; l < kLanes; ++l) largest = std::max(largest, most[l]);

  Floats sum{};
  const auto add = [&](FloatsInRow& vector) __attribute__((always_inline)) {
    Floats value = vector - largest;
    exp_of_negative(value);
    vector = value;
    sum += value;
  };
  for (int64_t i = 0; i < num_vectors; ++i) add(vectors[i]);
  add(rest[0]);
  add(rest[1]);
  float total = 0;
  for (int l = 0; l < kLanes; ++l) total += sum[l];

  const float scale = 1 / total;
  for (int64_t i = 0; i < num_vectors; ++i) vectors[i] *= scale;
  for (int64_t i = whole; i < count; ++i) negatives[i] = padded[i - whole] * scale;
  const float loss = std::log(total) + (largest - positive);
  positive = padded[kLanes] * scale - 1;
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
