// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/ladies.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "kernels/core/philox.h"

namespace lsm {
namespace {

/// An exponential variate of `random`, -log2(random / 2^64) with 40 fractional bits, by repeated
/// squaring: the logarithms of different libraries need not agree.
uint64_t exponential(uint64_t random) {
  constexpr int kBits = 40;
  random |= 1;
  const int zeros = std::countl_zero(random);
  uint64_t mantissa = random << zeros >> 1;  // [1, 2) with 62 fractional bits
  uint64_t fraction = 0;
  for (int bit = 0; bit < kBits; ++bit) {
    mantissa = static_cast<uint64_t>(static_cast<unsigned __int128>(mantissa) * mantissa >> 62);
    const uint64_t is_two = mantissa >> 63;
    mantissa >>= is_two;
    fraction = fraction << 1 | is_two;
  }
  return (static_cast<uint64_t>(zeros + 1) << kBits) - fraction;
}

/// The time at which a candidate is drawn. Exponential times with rates of the masses order the
/// candidates as successive draws do (Efraimidis and Spirakis, 2006).
struct Arrival {
  double time;
  int64_t id;
  size_t candidate;

  bool operator<(const Arrival& other) const {
    return time != other.time ? time < other.time : id < other.id;
  }
};

Arrival arrival_of(const LayerCandidate& candidate, size_t index, uint64_t key, uint32_t hop) {
  const uint64_t id = static_cast<uint64_t>(candidate.id);
  const Philox4x32 random =
      philox4x32({{static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), hop, 0}}, key);
  const uint64_t wait = exponential(uint64_t{random.word[0]} << 32 | random.word[1]);
  return {static_cast<double>(wait) / static_cast<double>(candidate.mass), candidate.id, index};
}

/// Coefficients for candidates drawn in the order of `drawn` among `num_contenders` with `total`
/// mass. After draw k, the drawn ones so far and the k-th, weighted by the inverse of its
/// probability among those left, estimate a sum without bias (Des Raj, 1956); the estimates of all
/// draws are combined so that equal masses give equal coefficients.
void debias_coefficients(std::span<const LayerCandidate> candidates, std::span<const Arrival> drawn,
                         size_t num_contenders, uint64_t total, std::span<double> coefficients) {
  const double all = static_cast<double>(num_contenders);
  const auto share = [&](size_t k) {  // of draw k, counted from 0, in the estimate after it
    return all / (static_cast<double>(k + 1) * (all - static_cast<double>(k)));
  };
  uint64_t left = total;
  for (size_t k = 0; k < drawn.size(); ++k) {
    const uint64_t mass = candidates[drawn[k].candidate].mass;
    coefficients[drawn[k].candidate] =
        share(k) * (static_cast<double>(left) / static_cast<double>(mass));
    left -= mass;
  }
  double remains = 1;  // of an estimate, after the later ones are mixed in
  for (size_t k = drawn.size(); k-- > 0;) {
    double& coefficient = coefficients[drawn[k].candidate];
    coefficient = coefficient * remains + (1 - remains);
    remains *= 1 - share(k);
  }
}

}  // namespace

void choose_layer(std::span<const LayerCandidate> candidates, int64_t count, uint64_t key,
                  uint32_t hop, bool debias, std::span<double> coefficients) {
  std::vector<Arrival> arrivals;
  arrivals.reserve(candidates.size());
  uint64_t total = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const LayerCandidate& candidate = candidates[i];
    coefficients[i] = 0;
    if (candidate.mass == 0) continue;
    if (candidate.is_known) {
      coefficients[i] = debias ? 1 : 1 / static_cast<double>(candidate.mass);
      if (debias) continue;
    }
    total += candidate.mass;
    arrivals.push_back(arrival_of(candidate, i, key, hop));
  }
  const size_t num_drawn = std::min(arrivals.size(), static_cast<size_t>(count));
  std::partial_sort(arrivals.begin(), arrivals.begin() + num_drawn, arrivals.end());
  const std::span<const Arrival> drawn(arrivals.data(), num_drawn);
  if (debias) {
    debias_coefficients(candidates, drawn, arrivals.size(), total, coefficients);
    return;
  }
  for (const Arrival& arrival : drawn) {
    coefficients[arrival.candidate] = 1 / static_cast<double>(candidates[arrival.candidate].mass);
  }
}

}  // namespace lsm
