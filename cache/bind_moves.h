// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Binds the moves of plans for executors. Included by bind*.cpp files only.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <vector>

#include "cache/plan_moves.h"
#include "cache/row_targets.h"
#include "kernels/bind_tensor.h"

namespace lsm {

/// The lists of `targets`: tuples of host tensors (row_of, rows, place), which must stay alive;
/// empty for None. `rows` may also be memory of GPU `device`, if that is not negative.
inline std::vector<RowTargets> row_targets(const pybind11::object& targets, int64_t row_bytes,
                                           int device = -1) {
  std::vector<RowTargets> lists;
  if (targets.is_none()) return lists;
  for (const pybind11::handle& each : targets) {
    const auto [row_of, rows, place] = each.cast<std::array<pybind11::object, 3>>();
    const auto wanted = rows.cast<TensorView>();
    const auto memory = wanted.as_bytes_on(wanted.on_host ? -1 : device, "targets, rows");
    const auto num_bytes = static_cast<int64_t>(memory.size());
    lists.push_back({row_of.cast<TensorView>().as<const int32_t>("targets, row_of"), memory.data(),
                     row_bytes == 0 ? INT64_MAX : num_bytes / row_bytes,
                     place.cast<TensorView>().as<const int32_t>("targets, place")});
  }
  return lists;
}

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
               const TensorView& spill_slot, const TensorView& spill_word,
               const TensorView& tag_slot, const TensorView& tag_word, More... more) {
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
            .tag_slot = tag_slot.as<int64_t>("tag_slot"),
            .tag_word = tag_word.as<int64_t>("tag_word"),
        };
        replay(self, moves, more...);
      },
      pybind11::kw_only(), arg("iteration"), arg("source"), arg("slot"), arg("evict_line"),
      arg("evict_slot"), arg("evict_word"), arg("insert_position"), arg("insert_line"),
      arg("spill_position"), arg("spill_slot"), arg("spill_word"), arg("tag_slot"), arg("tag_word"),
      names...);
}

}  // namespace lsm
