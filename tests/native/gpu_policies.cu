// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Every decision of the planner, instantiated in device code.
#include "cache/metadata_word.h"
#include "cache/policy/belady.h"
#include "cache/policy/clock.h"
#include "cache/policy/dynamic.h"
#include "cache/policy/hybrid.h"
#include "cache/policy/lfu.h"
#include "cache/policy/lookahead.h"
#include "cache/policy/lru.h"
#include "cache/policy/random.h"
#include "cache/policy/round_robin.h"
#include "cache/policy/s3fifo.h"
#include "cache/policy/sieve.h"
#include "cache/policy/static_score.h"
#include "cache/policy/window.h"
#include "cache/set_loop.h"

using namespace lsm::cache;

template <class Policy>
__global__ void decide(Policy policy, SetView<Policy> set, Turn turn, Newcomer row,
                       Placement* placement) {
  policy.on_hit(set.lines[0]);
  policy.refresh(set.lines[0]);
  *placement = place(lsm::GpuWarp(), policy, set, turn, row);
}

__global__ void pack(RowMetadata row, uint64_t* word) {
  *word = pack_metadata(row);
}

template <class... Policy>
void instantiate() {
  (decide<Policy><<<1, 1>>>({}, {}, {}, {}, nullptr), ...);
}

void instantiate_all() {
  instantiate<Belady, Clock, Dynamic, Hybrid, Lfu, Lookahead, Lru, Random, RoundRobin, S3Fifo,
              Sieve, StaticScore, Window>();
  pack<<<1, 1>>>({}, nullptr);
}
