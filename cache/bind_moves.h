// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Lets executors be told a plan's moves from Python. Included by bind*.cpp files only.
#pragma once

#include <pybind11/pybind11.h>

#include "cache/executor.h"
#include "kernels/bind_tensor.h"

namespace lsm {

/// Binds `replay(executor, moves, more...)` as a method of `executor` that takes the parts of
/// `moves` by name, and then `more` by `names`. Tensors are kept alive for the call only.
template <class Executor, class... Options, class... More, class... Names>
void def_replay(pybind11::class_<Executor, Options...>& executor,
                void (*replay)(Executor&, const PlanMoves&, More...), const Names&... names) {
  using pybind11::arg;
  executor.def(
      "replay",
      [replay](Executor& self, int64_t iteration, const TensorView& source, const TensorView& slot,
               const TensorView& evict_line, const TensorView& evict_slot,
               const TensorView& evict_word, const TensorView& insert_position,
               const TensorView& insert_line, const TensorView& spill_position,
               const TensorView& spill_slot, const TensorView& spill_word, More... more) {
        const PlanMoves moves{
            .iteration = iteration,
            .source = source.as<uint8_t>("source"),
            .slot = slot.as<int64_t>("slot"),
            .evict_line = evict_line.as<int64_t>("evict_line"),
            .evict_slot = evict_slot.as<int64_t>("evict_slot"),
            .evict_word = evict_word.as<int64_t>("evict_word"),
            .insert_position = insert_position.as<int64_t>("insert_position"),
            .insert_line = insert_line.as<int64_t>("insert_line"),
            .spill_position = spill_position.as<int64_t>("spill_position"),
            .spill_slot = spill_slot.as<int64_t>("spill_slot"),
            .spill_word = spill_word.as<int64_t>("spill_word"),
        };
        replay(self, moves, more...);
      },
      pybind11::kw_only(), arg("iteration"), arg("source"), arg("slot"), arg("evict_line"),
      arg("evict_slot"), arg("evict_word"), arg("insert_position"), arg("insert_line"),
      arg("spill_position"), arg("spill_slot"), arg("spill_word"), names...);
}

}  // namespace lsm
