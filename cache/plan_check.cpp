// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/plan_check.h"

#include "cache/metadata_word.h"
#include "kernels/core/check.h"
#include "kernels/gather/gather.h"

namespace lsm {
namespace {

/// A row in the victim buffer waits for a coming iteration, or for an unknown one.
void check_words(const char* name, int64_t iteration, std::span<const int64_t> slots,
                 std::span<const int64_t> words) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto word = static_cast<uint64_t>(words[i]);
    check_argument(slots[i] < 0 || word == cache::kUnknownUse ||
                       cache::unpack_metadata(word, iteration).next_use != uint64_t(iteration),
                   name, ": expected a next use after iteration ", iteration, ", got ", iteration,
                   " at position ", i);
  }
}

void check_pair(const char* a, size_t a_size, const char* b, size_t b_size) {
  check_argument(a_size == b_size, a, ", ", b, ": expected the same length, got ", a_size, " and ",
                 b_size);
}

size_t index(RowSource source) {
  return static_cast<size_t>(source);
}

}  // namespace

PlanCheck::PlanCheck(const std::array<int64_t, kNumTiers>& tier_rows)
    : tier_rows_(tier_rows),
      lines_written_(static_cast<size_t>(tier_rows[index(RowSource::kCache)])),
      victims_written_(static_cast<size_t>(tier_rows[index(RowSource::kVictim)])) {}

void PlanCheck::operator()(const cache::Plan& plan) {
  const auto num_positions = static_cast<int64_t>(plan.source.size());
  check_pair("source", plan.source.size(), "slot", plan.slot.size());
  check_pair("evict_line", plan.evict_line.size(), "evict_slot", plan.evict_slot.size());
  check_pair("evict_slot", plan.evict_slot.size(), "evict_word", plan.evict_word.size());
  check_pair("insert_position", plan.insert_position.size(), "insert_line",
             plan.insert_line.size());
  check_pair("spill_position", plan.spill_position.size(), "spill_slot", plan.spill_slot.size());
  check_pair("spill_slot", plan.spill_slot.size(), "spill_word", plan.spill_word.size());
  check_words("evict_word", plan.iteration, plan.evict_slot, plan.evict_word);
  check_words("spill_word", plan.iteration, plan.spill_slot, plan.spill_word);
  check_pair("tag_slot", plan.tag_slot.size(), "tag_word", plan.tag_word.size());
  check_words("tag_word", plan.iteration, plan.tag_slot, plan.tag_word);
  check_ids("tag_slot", plan.tag_slot, tier_rows_[index(RowSource::kVictim)]);
  check_sources(plan);
  check_ids("evict_line", plan.evict_line, tier_rows_[index(RowSource::kCache)]);
  check_ids("insert_position", plan.insert_position, num_positions);
  check_ids("spill_position", plan.spill_position, num_positions);
  ++plan_number_;
  claim("evict_slot", victims_written_, plan.evict_slot, /*may_drop=*/true);
  claim("spill_slot", victims_written_, plan.spill_slot, /*may_drop=*/false);
  claim("insert_line", lines_written_, plan.insert_line, /*may_drop=*/false);
}

void PlanCheck::check_sources(const cache::Plan& plan) const {
  // The slot of a row from storage is ignored.
  for (size_t i = 0; i < plan.source.size(); ++i) {
    if (plan.source[i] == RowSource::kStorage) continue;
    const auto source = static_cast<uint8_t>(plan.source[i]);
    check_argument(source < kNumTiers, "source: expected 0 to ", kNumTiers, ", got ", int{source},
                   " at position ", i);
    check_argument(static_cast<uint64_t>(plan.slot[i]) < static_cast<uint64_t>(tier_rows_[source]),
                   "slot: expected 0 to ", tier_rows_[source] - 1, " for source ", int{source},
                   ", got ", plan.slot[i], " at position ", i);
  }
}

void PlanCheck::claim(const char* name, std::vector<uint32_t>& written,
                      std::span<const int64_t> rows, bool may_drop) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (may_drop && rows[i] == -1) continue;
    check_argument(static_cast<uint64_t>(rows[i]) < written.size(), name, ": expected 0 to ",
                   static_cast<int64_t>(written.size()) - 1, ", got ", rows[i], " at position ", i);
    uint32_t& writer = written[static_cast<size_t>(rows[i])];
    check_argument(writer != plan_number_, name, ": ", rows[i], " at position ", i,
                   " is written twice in one plan");
    writer = plan_number_;
  }
}

}  // namespace lsm
