// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/executor.h"

#include <algorithm>
#include <array>

#include "cache/metadata_word.h"

#include "kernels/core/check.h"
#include "kernels/gather/copy_rows.h"
#include "kernels/gather/gather.h"

namespace lsm {
namespace {

constexpr size_t kFillRows = 1 << 16;  // rows of one read while filling; bounds its bookkeeping
constexpr size_t kNumTiers = 4;

/// A row that enters the victim buffer waits for an iteration to come.
void check_words(const char* name, int64_t iteration, const VictimMoves& moves) {
  for (size_t i = 0; i < moves.slot.size(); ++i) {
    const auto word = static_cast<uint64_t>(moves.word[i]);
    check_argument(moves.slot[i] < 0 ||
                       cache::unpack_metadata(word, iteration).next_use != uint64_t(iteration),
                   name, ": expected a next use after iteration ", iteration, ", got ", iteration,
                   " at position ", i);
  }
}

void check_pair(const char* a, size_t a_size, const char* b, size_t b_size) {
  check_argument(a_size == b_size, a, ", ", b, ": expected the same length, got ", a_size, " and ",
                 b_size);
}

/// Nothing is prefetched during its lifetime.
struct Pause {
  explicit Pause(VictimPrefetcher& prefetcher) : prefetcher(prefetcher) { prefetcher.pause(); }
  ~Pause() { prefetcher.resume(); }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

  VictimPrefetcher& prefetcher;
};

}  // namespace

CacheExecutor::CacheExecutor(const Sizes& sizes, Storage& storage,
                             std::span<const int64_t> static_ids,
                             std::span<const int64_t> constant_ids, double timeout_secs)
    : row_bytes_(storage.layout().row_bytes),
      static_rows_(static_cast<int64_t>(static_ids.size()), row_bytes_),
      lines_(sizes.num_lines, row_bytes_),
      victims_(sizes.victim_slots, row_bytes_),
      constant_rows_(static_cast<int64_t>(constant_ids.size()), row_bytes_),
      prefetcher_({sizes.victim_slots, row_bytes_, sizes.prefetch_iterations, timeout_secs},
                  victims_.block.data()) {
  lines_.written.resize(static_cast<size_t>(sizes.num_lines));
  victims_.written.resize(static_cast<size_t>(sizes.victim_slots));
  fill(static_rows_, storage, static_ids, timeout_secs);
  fill(constant_rows_, storage, constant_ids, timeout_secs);
}

void CacheExecutor::fill(Tier& tier, Storage& storage, std::span<const int64_t> ids,
                         double timeout_secs) {
  std::byte* target = tier.block.data();
  for (size_t begin = 0; begin < ids.size(); begin += kFillRows) {
    const auto part = ids.subspan(begin, std::min(kFillRows, ids.size() - begin));
    const size_t bytes = part.size() * static_cast<size_t>(row_bytes_);
    // On an error or a time-out wait() sees to it that nothing is written any more.
    const RowRead read{part, {}, {target, bytes}};
    storage.submit({&read, 1}).front()->wait(timeout_secs);
    target += bytes;
  }
}

void CacheExecutor::replay(const PlanMoves& plan, std::span<std::byte> batch, ThreadPool& pool) {
  const auto num_positions = static_cast<int64_t>(plan.source.size());
  check_argument(batch.size() == plan.source.size() * static_cast<size_t>(row_bytes_),
                 "out: expected ", num_positions, " rows of ", row_bytes_, " bytes, got ",
                 batch.size(), " bytes");
  check(plan, num_positions);
  const Pause pause(prefetcher_);
  move(plan, prefetcher_.arrived(plan.iteration, batch), batch.data(), pool);
  const VictimMoves moves[] = {{plan.evict_slot, plan.evict_word},
                               {plan.spill_slot, plan.spill_word}};
  prefetcher_.record(plan.iteration, moves);
}

/// Rows that have `arrived` are not copied to the batch again.
void CacheExecutor::move(const PlanMoves& plan, std::span<const uint8_t> arrived, std::byte* rows,
                         ThreadPool& pool) {
  std::byte* const lines = lines_.block.data();
  std::byte* const victims = victims_.block.data();
  const std::array<const std::byte*, kNumTiers> tiers = {static_rows_.block.data(), lines, victims,
                                                         constant_rows_.block.data()};
  const auto row_of = [this](auto* base, std::span<const int64_t> index) {
    return [this, base, index](int64_t i) { return base + index[i] * row_bytes_; };
  };
  const auto count = [](std::span<const int64_t> moves) {
    return static_cast<int64_t>(moves.size());
  };
  const auto from_tier = [&](int64_t i) -> const std::byte* {
    const uint8_t source = plan.source[i];
    if (source >= kNumTiers || (!arrived.empty() && arrived[i] != 0)) return nullptr;
    return tiers[source] + plan.slot[i] * row_bytes_;
  };
  const auto evicted = [&](int64_t i) -> const std::byte* {
    return plan.evict_slot[i] < 0 ? nullptr : lines + plan.evict_line[i] * row_bytes_;
  };
  copy_rows(
      static_cast<int64_t>(plan.source.size()), row_bytes_, from_tier,
      [&](int64_t i) { return rows + i * row_bytes_; }, pool);
  copy_rows(count(plan.evict_line), row_bytes_, evicted, row_of(victims, plan.evict_slot), pool);
  copy_rows(count(plan.spill_position), row_bytes_, row_of(rows, plan.spill_position),
            row_of(victims, plan.spill_slot), pool);
  copy_rows(count(plan.insert_position), row_bytes_, row_of(rows, plan.insert_position),
            row_of(lines, plan.insert_line), pool);
}

void CacheExecutor::check(const PlanMoves& plan, int64_t num_positions) {
  check_pair("source", plan.source.size(), "slot", plan.slot.size());
  check_pair("evict_line", plan.evict_line.size(), "evict_slot", plan.evict_slot.size());
  check_pair("evict_slot", plan.evict_slot.size(), "evict_word", plan.evict_word.size());
  check_pair("insert_position", plan.insert_position.size(), "insert_line",
             plan.insert_line.size());
  check_pair("spill_position", plan.spill_position.size(), "spill_slot", plan.spill_slot.size());
  check_pair("spill_slot", plan.spill_slot.size(), "spill_word", plan.spill_word.size());
  check_words("evict_word", plan.iteration, {plan.evict_slot, plan.evict_word});
  check_words("spill_word", plan.iteration, {plan.spill_slot, plan.spill_word});
  check_sources(plan);
  check_ids("evict_line", plan.evict_line, lines_.num_rows);
  check_ids("insert_position", plan.insert_position, num_positions);
  check_ids("spill_position", plan.spill_position, num_positions);
  ++plan_number_;
  claim("evict_slot", victims_, plan.evict_slot, /*may_drop=*/true);
  claim("spill_slot", victims_, plan.spill_slot, /*may_drop=*/false);
  claim("insert_line", lines_, plan.insert_line, /*may_drop=*/false);
}

void CacheExecutor::check_sources(const PlanMoves& plan) {
  // By source; nothing of a row from storage is looked at.
  const std::array<int64_t, kNumTiers> bounds = {static_rows_.num_rows, lines_.num_rows,
                                                 victims_.num_rows, constant_rows_.num_rows};
  for (size_t i = 0; i < plan.source.size(); ++i) {
    const uint8_t source = plan.source[i];
    if (source == static_cast<uint8_t>(RowSource::kStorage)) continue;
    check_argument(source < kNumTiers, "source: expected 0 to ", kNumTiers, ", got ", int{source},
                   " at position ", i);
    check_argument(static_cast<uint64_t>(plan.slot[i]) < static_cast<uint64_t>(bounds[source]),
                   "slot: expected 0 to ", bounds[source] - 1, " for source ", int{source},
                   ", got ", plan.slot[i], " at position ", i);
  }
}

void CacheExecutor::claim(const char* name, Tier& tier, std::span<const int64_t> rows,
                          bool may_drop) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (may_drop && rows[i] == -1) continue;
    check_argument(static_cast<uint64_t>(rows[i]) < static_cast<uint64_t>(tier.num_rows), name,
                   ": expected 0 to ", tier.num_rows - 1, ", got ", rows[i], " at position ", i);
    uint32_t& writer = tier.written[static_cast<size_t>(rows[i])];
    check_argument(writer != plan_number_, name, ": ", rows[i], " at position ", i,
                   " is written twice in one plan");
    writer = plan_number_;
  }
}

}  // namespace lsm
