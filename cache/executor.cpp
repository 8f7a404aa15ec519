// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/executor.h"

#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/gather/copy_rows.h"
#include "kernels/gather/gather.h"

namespace lsm {
namespace {

constexpr size_t kFillRows = 1 << 16;  // rows of one read while filling; bounds its bookkeeping

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
                             std::span<const int64_t> static_rows,
                             std::span<const int64_t> constant_rows, double timeout_secs)
    : row_bytes_(storage.layout().row_bytes),
      static_(static_cast<int64_t>(static_rows.size()), row_bytes_),
      lines_(sizes.num_lines, row_bytes_),
      victims_(sizes.victim_slots, row_bytes_),
      constant_(static_cast<int64_t>(constant_rows.size()), row_bytes_),
      check_({static_.num_rows, lines_.num_rows, victims_.num_rows, constant_.num_rows}),
      prefetcher_({sizes.victim_slots, row_bytes_, sizes.prefetch_iterations, timeout_secs},
                  victims_.block.data()) {
  fill(static_, storage, static_rows, timeout_secs);
  fill(constant_, storage, constant_rows, timeout_secs);
}

void CacheExecutor::fill(Tier& tier, Storage& storage, std::span<const int64_t> rows,
                         double timeout_secs) {
  std::byte* target = tier.block.data();
  for (size_t begin = 0; begin < rows.size(); begin += kFillRows) {
    const auto part = rows.subspan(begin, std::min(kFillRows, rows.size() - begin));
    const size_t bytes = part.size() * static_cast<size_t>(row_bytes_);
    // After an error or a time-out of wait() nothing writes to the buffer any more.
    const RowRead read{part, {}, {target, bytes}};
    storage.submit({&read, 1}).front()->wait(timeout_secs);
    target += bytes;
  }
}

void CacheExecutor::replay(const cache::Plan& plan, std::span<const std::byte> staged,
                           std::span<std::byte> batch, ThreadPool& pool) {
  check(plan, staged, batch);
  if (!staged.empty()) place_staged(plan, staged.data(), batch.data(), pool);
  const Pause pause(prefetcher_);
  const RowsNow now = {plan, prefetcher_.arrived(plan.iteration, batch), batch.data()};
  const auto missing = [&](int64_t i) { return now.in_batch(i) ? nullptr : row_in_tier(plan, i); };
  copy_rows(
      static_cast<int64_t>(plan.source.size()), row_bytes_, missing,
      [&](int64_t i) { return batch.data() + i * row_bytes_; }, pool);
  move(plan, batch.data(), pool);
}

void CacheExecutor::replay_to(const cache::Plan& plan, std::span<const std::byte> staged,
                              std::span<std::byte> batch, std::span<const RowTargets> targets,
                              ThreadPool& pool) {
  check(plan, staged, batch);
  check_targets(targets, static_cast<int64_t>(plan.source.size()));
  if (!staged.empty()) place_staged(plan, staged.data(), batch.data(), pool);
  const Pause pause(prefetcher_);
  const RowsNow now = {plan, prefetcher_.arrived(plan.iteration, batch), batch.data()};
  keep(now, plan.spill_position, pool);
  keep(now, plan.insert_position, pool);
  for (const RowTargets& list : targets) deliver(now, list, pool);
  move(plan, batch.data(), pool);
}

void CacheExecutor::check(const cache::Plan& plan, std::span<const std::byte> staged,
                          std::span<const std::byte> batch) {
  check_argument(batch.size() == plan.source.size() * static_cast<size_t>(row_bytes_),
                 "out: expected ", plan.source.size(), " rows of ", row_bytes_, " bytes, got ",
                 batch.size(), " bytes");
  const size_t num_missing = plan.miss_position.size();
  check_argument(staged.empty() || staged.size() == num_missing * static_cast<size_t>(row_bytes_),
                 "staged: expected ", num_missing, " rows of ", row_bytes_, " bytes, got ",
                 staged.size(), " bytes");
  check_(plan);
}

void CacheExecutor::place_staged(const cache::Plan& plan, const std::byte* staged, std::byte* batch,
                                 ThreadPool& pool) const {
  copy_rows(
      static_cast<int64_t>(plan.miss_position.size()), row_bytes_,
      [&](int64_t i) { return staged + i * row_bytes_; },
      [&](int64_t i) { return batch + plan.miss_position[i] * row_bytes_; }, pool);
}

const std::byte* CacheExecutor::row_in_tier(const cache::Plan& plan, int64_t i) const {
  const Tier* const tiers[kNumTiers] = {&static_, &lines_, &victims_, &constant_};
  return tiers[static_cast<size_t>(plan.source[i])]->block.data() + plan.slot[i] * row_bytes_;
}

/// Copies the rows at `positions` that are missing in the batch.
void CacheExecutor::keep(const RowsNow& now, std::span<const int64_t> positions, ThreadPool& pool) {
  const auto missing = [&](int64_t i) {
    return now.in_batch(positions[i]) ? nullptr : row_in_tier(now.plan, positions[i]);
  };
  copy_rows(
      static_cast<int64_t>(positions.size()), row_bytes_, missing,
      [&](int64_t i) { return now.batch + positions[i] * row_bytes_; }, pool);
}

void CacheExecutor::deliver(const RowsNow& now, const RowTargets& list, ThreadPool& pool) const {
  const auto source = [&](int64_t k) -> const std::byte* {
    const int64_t i = list.row_of[k];
    return now.in_batch(i) ? now.batch + i * row_bytes_ : row_in_tier(now.plan, i);
  };
  const auto target = [&](int64_t k) {
    return list.rows + (list.place.empty() ? k : int64_t{list.place[k]}) * row_bytes_;
  };
  copy_rows(static_cast<int64_t>(list.row_of.size()), row_bytes_, source, target, pool);
}

/// Moves rows into the victim buffer and the lines: the steps after the first.
void CacheExecutor::move(const cache::Plan& plan, const std::byte* rows, ThreadPool& pool) {
  std::byte* const lines = lines_.block.data();
  std::byte* const victims = victims_.block.data();
  const auto row_of = [this](auto* base, std::span<const int64_t> index) {
    return [this, base, index](int64_t i) { return base + index[i] * row_bytes_; };
  };
  const auto count = [](std::span<const int64_t> moves) {
    return static_cast<int64_t>(moves.size());
  };
  const auto evicted = [&](int64_t i) -> const std::byte* {
    return plan.evict_slot[i] < 0 ? nullptr : lines + plan.evict_line[i] * row_bytes_;
  };
  copy_rows(count(plan.evict_line), row_bytes_, evicted, row_of(victims, plan.evict_slot), pool);
  copy_rows(count(plan.spill_position), row_bytes_, row_of(rows, plan.spill_position),
            row_of(victims, plan.spill_slot), pool);
  copy_rows(count(plan.insert_position), row_bytes_, row_of(rows, plan.insert_position),
            row_of(lines, plan.insert_line), pool);
  const VictimMoves moves[] = {{plan.tag_slot, plan.tag_word},
                               {plan.evict_slot, plan.evict_word},
                               {plan.spill_slot, plan.spill_word}};
  prefetcher_.record(plan.iteration, moves);
}

}  // namespace lsm
