// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// LABOR-0 (Balin and Catalyurek, "Layer-neighbor sampling", NeurIPS 2023): every source node has
// one draw per hop, and every destination takes its neighbours with the smallest draws. So
// destinations agree on sources where they can, and each still has a uniform sample without
// replacement.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "kernels/core/macros.h"
#include "kernels/core/philox.h"
#include "kernels/sample/sampling.h"

namespace lsm {

/// The draws of one hop of one batch. Ranks share them, as if they sampled one batch together.
///
/// With batch dependency k, a node keeps its draw for k iterations, and 1/k of the nodes get a new
/// one at each. GraphBolt instead rotates all draws a little at each iteration, through normal
/// variates. As many neighbours change (its angle of pi / 2k exchanges 1.1/k of a fifth of the
/// neighbours), but this needs no floating point, and draws k iterations apart are independent.
struct SourceDraws {
  uint64_t keys[2];  // of a generation, and of the next
  uint32_t period;   // k
  uint32_t age;      // iterations since the generation began, below period
  uint32_t phase_key;

  LSM_HOST_DEVICE static SourceDraws of(const LaborSampling& sampling, const BatchName& batch,
                                        uint32_t hop) {
    const uint32_t period = sampling.batch_dependency;
    const uint32_t layer = sampling.layer_dependency ? 0 : hop;
    if (period == 1) {
      const uint64_t key = batch_key(batch.seed, batch.epoch, batch.iteration, 0);
      return {{batch_key(key, 0, layer, 1), 0}, 1, 0, 0};
    }
    const uint64_t key = batch_key(batch.seed, period, 0, 1);
    const uint64_t generation = batch.step / period;
    return {{batch_key(key, generation, layer, 1), batch_key(key, generation + 1, layer, 1)},
            period,
            static_cast<uint32_t>(batch.step % period),
            static_cast<uint32_t>(key)};
  }

  /// Index of the key of a node's draw.
  LSM_HOST_DEVICE uint32_t generation_of(uint32_t id_low, uint32_t id_high) const {
    uint32_t x = id_low ^ id_high * 0x9E3779B1u ^ phase_key;  // MurmurHash3's 32-bit finaliser
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    x ^= x >> 16;
    const uint32_t phase = static_cast<uint32_t>(uint64_t{x} * period >> 32);
    return static_cast<uint32_t>(age + phase >= period);
  }

  LSM_HOST_DEVICE uint32_t operator()(uint64_t id) const {
    const uint32_t low = static_cast<uint32_t>(id);
    const uint32_t high = static_cast<uint32_t>(id >> 32);
    const uint64_t key = keys[generation_of(low, high)];
    return philox2x32({{low, high ^ static_cast<uint32_t>(key >> 32)}}, static_cast<uint32_t>(key))
        .word[0];
  }
};

/// The draws that the destinations of a hop share, if they do in this kind of sampling.
inline std::optional<SourceDraws> draws_of(const Sampling& kind, const BatchName& batch,
                                           uint32_t hop) {
  const auto* const labor = std::get_if<LaborSampling>(&kind);
  if (labor == nullptr) return std::nullopt;
  return SourceDraws::of(*labor, batch, hop);
}

}  // namespace lsm
