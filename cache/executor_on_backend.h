// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GpuExecutor on a Backend.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "cache/executor_functors.h"
#include "cache/gpu_executor.h"
#include "cache/staged_runs.h"
#include "cache/victim_prefetcher_on_backend.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
#include "kernels/gather/copy_rows_functors.h"

namespace lsm {

template <class Backend>
class ExecutorOnBackend final : public GpuExecutor {
 public:
  ExecutorOnBackend(std::unique_ptr<Backend> backend, std::unique_ptr<Backend> copies,
                    const GpuExecutorOptions& options, Storage& storage,
                    std::span<const int64_t> static_ids, std::span<const int64_t> constant_ids)
      : backend_(std::move(backend)),
        options_(options),
        row_bytes_(storage.layout().row_bytes),
        num_static_(static_cast<int64_t>(static_ids.size())),
        num_constant_(static_cast<int64_t>(constant_ids.size())),
        check_({num_static_, options.num_lines, options.victim_slots, num_constant_}),
        prefetch_(std::move(copies), *backend_, options, row_bytes_) {
    backend_->enter();
    lines_.assign(options.num_lines * row_bytes_, 0);
    static_rows_.assign(num_static_ * row_bytes_, 0);
    victims_.assign(options.victim_slots * row_bytes_);
    constant_rows_.assign(num_constant_ * row_bytes_);
    read(storage, constant_ids, constant_rows_.data());
    fill_static(storage, static_ids);
  }

  ~ExecutorOnBackend() override { backend_->drain(); }

  void replay(const PlanMoves& plan, std::span<const std::byte> staged,
              std::span<std::byte> out) override {
    check_staged(plan, staged);
    check_argument(out.size() == staged.size(), "out: expected ", plan.source.size(), " rows of ",
                   row_bytes_, " bytes, got ", out.size(), " bytes");
    check_(plan);
    backend_->enter();
    locate(plan);
    copy_located(source_now_, slot_now_, staged.data(), out.data());
    move_kept(plan, out.data(), plan.spill_position, plan.insert_position);
  }

  void replay_to(const PlanMoves& plan, std::span<const std::byte> staged,
                 std::span<const RowTargets> targets) override {
    check_staged(plan, staged);
    check_targets(targets, static_cast<int64_t>(plan.source.size()));
    check_(plan);
    backend_->enter();
    backend_->synchronize();  // also for the last replay's own moves
    locate(plan);
    fill_scratch(plan, staged.data());
    deliver(targets);
    backend_->record(delivered_);
    move_kept(plan, scratch_.data(), spilled_now_, inserted_now_);
  }

  void wait_delivered() override {
    backend_->enter();
    backend_->wait(delivered_, "the rows of a batch for all that asked for them");
  }

  void prefetch(std::span<const int64_t> victim_slots) override {
    for (const int64_t slot : victim_slots) {
      check_argument(slot >= 0 && slot < options_.victim_slots,
                     "victim_slots: expected slots in [0, ", options_.victim_slots, "), got ",
                     slot);
    }
    prefetch_.start(victim_slots, victims_.data());
  }

  void set_staging(Staging staging) override { staging_ = staging; }

  void synchronize() override {
    backend_->enter();
    backend_->synchronize();
  }

  intptr_t stream() const override { return backend_->stream_number(); }
  int64_t row_bytes() const override { return row_bytes_; }
  int64_t device_bytes() const override {
    return (options_.num_lines + num_static_ + options_.prefetch_rows) * row_bytes_;
  }
  int64_t pinned_bytes() const override {
    return (options_.victim_slots + num_constant_ + options_.prefetch_rows) * row_bytes_;
  }

 private:
  template <class T>
  using Array = BackendArray<T, Backend>;
  static constexpr int64_t kFillRows = 1 << 16;    // rows of one read while filling
  static constexpr int64_t kFillBytes = 32 << 20;  // bytes of one upload

  void read(Storage& storage, std::span<const int64_t> ids, std::byte* target) {
    for (size_t begin = 0; begin < ids.size(); begin += kFillRows) {
      const auto part = ids.subspan(begin, std::min<size_t>(kFillRows, ids.size() - begin));
      const size_t bytes = part.size() * static_cast<size_t>(row_bytes_);
      // After an error or a time-out of wait() nothing writes to the buffer any more.
      const RowRead rows{part, {}, {target, bytes}};
      storage.submit({&rows, 1}).front()->wait(options_.timeout_secs);
      target += bytes;
    }
  }

  void fill_static(Storage& storage, std::span<const int64_t> ids) {
    std::vector<std::byte> part;
    const size_t rows =
        static_cast<size_t>(std::clamp<int64_t>(kFillBytes / row_bytes_, 1, kFillRows));
    for (size_t begin = 0; begin < ids.size(); begin += rows) {
      const auto part_ids = ids.subspan(begin, std::min<size_t>(rows, ids.size() - begin));
      part.resize(part_ids.size() * static_cast<size_t>(row_bytes_));
      read(storage, part_ids, part.data());
      backend_->upload(static_rows_.data() + static_cast<int64_t>(begin) * row_bytes_, part.data(),
                       part.size());
      backend_->synchronize();
    }
  }

  void check_staged(const PlanMoves& plan, std::span<const std::byte> staged) const {
    check_argument(staged.size() == plan.source.size() * static_cast<size_t>(row_bytes_),
                   "staged: expected ", plan.source.size(), " rows of ", row_bytes_, " bytes, got ",
                   staged.size(), " bytes");
  }

  /// Sets source_now_ and slot_now_, the place of each row of the plan. Storage rows are numbered
  /// by position, prefetched ones by their place in that buffer.
  void locate(const PlanMoves& plan) {
    source_now_.assign(plan.source.begin(), plan.source.end());
    slot_now_.assign(plan.slot.begin(), plan.slot.end());
    const int64_t num_prefetched = prefetch_.finish(plan);
    int64_t num_victims = 0;
    for (size_t i = 0; i < source_now_.size(); ++i) {
      if (source_now_[i] == static_cast<uint8_t>(RowSource::kStorage)) {
        slot_now_[i] = static_cast<int64_t>(i);
      }
      if (source_now_[i] != static_cast<uint8_t>(RowSource::kVictim)) continue;
      if (num_victims < num_prefetched) {
        source_now_[i] = TierRows::kPrefetched;
        slot_now_[i] = num_victims;
      }
      ++num_victims;
    }
  }

  TierRows tiers(const std::byte* staged, const std::byte* scratch) const {
    return {{static_rows_.data(), lines_.data(), victims_.data(), constant_rows_.data(), staged,
             prefetch_.rows(), scratch},
            nullptr,
            nullptr,
            nullptr,
            row_bytes_};
  }

  uintptr_t tiers_alignment(const std::byte* staged) const {
    return alignment_bits(row_bytes_, lines_.data(), static_rows_.data(), victims_.data(),
                          constant_rows_.data(), staged, prefetch_.rows());
  }

  /// Copies row slot[i] of tier source[i] to row i of `out`.
  void copy_located(std::span<const uint8_t> source, std::span<const int64_t> slot,
                    const std::byte* staged, std::byte* out) {
    if (source.empty()) return;
    const bool are_copied = staging_ == Staging::kCopy;
    if (are_copied) copy_staged(source, slot, staged, out);
    TierRows rows = tiers(are_copied ? nullptr : staged, nullptr);
    rows.tier_of = source_.upload(source);
    rows.slot = slot_.upload(slot);
    rows.out = out;
    copy_rows_on(*backend_, static_cast<int64_t>(source.size()), row_bytes_,
                 tiers_alignment(staged) | alignment_bits(0, out), rows);
  }

  /// Copies to the GPU the rows that lie behind PCIe, and rows that later steps need after their
  /// place may have been written. Updates source_now_ and slot_now_.
  void fill_scratch(const PlanMoves& plan, const std::byte* staged) {
    const auto is_near = [](uint8_t source) {
      return source == static_cast<uint8_t>(RowSource::kStatic) ||
             source == static_cast<uint8_t>(RowSource::kCache) || source == TierRows::kPrefetched;
    };
    is_kept_.assign(source_now_.size(), 0);
    for (const int64_t position : plan.spill_position) is_kept_[position] = 1;
    for (const int64_t position : plan.insert_position) is_kept_[position] = 1;
    far_source_.clear();
    far_slot_.clear();
    for (size_t i = 0; i < source_now_.size(); ++i) {
      if (is_near(source_now_[i]) && is_kept_[i] == 0) continue;
      far_source_.push_back(std::exchange(source_now_[i], TierRows::kScratch));
      far_slot_.push_back(std::exchange(slot_now_[i], static_cast<int64_t>(far_slot_.size())));
    }
    scratch_.grow(static_cast<int64_t>(far_slot_.size()) * row_bytes_);
    copy_located(far_source_, far_slot_, staged, scratch_.data());
    const auto in_scratch = [&](std::span<const int64_t> positions, std::vector<int64_t>& rows) {
      rows.clear();
      for (const int64_t position : positions) rows.push_back(slot_now_[position]);
    };
    in_scratch(plan.spill_position, spilled_now_);
    in_scratch(plan.insert_position, inserted_now_);
  }

  void deliver(std::span<const RowTargets> targets) {
    row_of_now_.clear();
    place_now_.clear();
    starts_now_.clear();
    bases_now_.clear();
    uintptr_t alignment = tiers_alignment(nullptr) | alignment_bits(0, scratch_.data());
    for (const RowTargets& target : targets) {
      if (target.row_of.empty()) continue;
      starts_now_.push_back(static_cast<int64_t>(row_of_now_.size()));
      bases_now_.push_back(target.rows);
      alignment |= alignment_bits(0, target.rows);
      row_of_now_.insert(row_of_now_.end(), target.row_of.begin(), target.row_of.end());
      place_now_.resize(row_of_now_.size());
      const auto places = std::span(place_now_).last(target.row_of.size());
      if (target.place.empty()) {
        std::iota(places.begin(), places.end(), 0);
      } else {
        std::copy(target.place.begin(), target.place.end(), places.begin());
      }
    }
    if (row_of_now_.empty()) return;
    TierRows rows = tiers(nullptr, scratch_.data());
    rows.tier_of = source_.upload(source_now_);
    rows.slot = slot_.upload(slot_now_);
    const WantedRows copies{rows,
                            row_of_.upload(row_of_now_),
                            place_.upload(place_now_),
                            starts_.upload(starts_now_),
                            bases_.upload(bases_now_),
                            static_cast<int64_t>(bases_now_.size())};
    copy_rows_on(*backend_, static_cast<int64_t>(row_of_now_.size()), row_bytes_, alignment,
                 copies);
  }

  /// Steps 2 and 3 of a replay. `rows` holds the spilled and inserted rows, by these numbers.
  void move_kept(const PlanMoves& plan, const std::byte* rows, std::span<const int64_t> spilled,
                 std::span<const int64_t> inserted) {
    const auto move = [&](const std::byte* from, std::span<const int64_t> from_row,
                          Array<int64_t>& from_array, std::byte* to,
                          std::span<const int64_t> to_row, Array<int64_t>& to_array) {
      if (from_row.empty()) return;
      const NumberedRows<int64_t> moved{from, from_array.upload(from_row), to,
                                        to_array.upload(to_row), row_bytes_};
      copy_rows_on(*backend_, static_cast<int64_t>(from_row.size()), row_bytes_,
                   alignment_bits(row_bytes_, from, to), moved);
    };
    move(lines_.data(), plan.evict_line, evict_line_, victims_.data(), plan.evict_slot,
         evict_slot_);
    move(rows, spilled, spill_position_, victims_.data(), plan.spill_slot, spill_slot_);
    move(rows, inserted, insert_position_, lines_.data(), plan.insert_line, insert_line_);
    prefetch_.mark_replayed();
  }

  /// Runs before the gather, which overwrites the extra rows of runs.
  void copy_staged(std::span<const uint8_t> source, std::span<const int64_t> slot,
                   const std::byte* staged, std::byte* out) {
    for_each_staged_run(source, slot, row_bytes_, [&](int64_t first, int64_t from, int64_t count) {
      backend_->copy(out + first * row_bytes_, staged + from * row_bytes_,
                     static_cast<size_t>(count * row_bytes_));
    });
  }

  const std::unique_ptr<Backend> backend_;  // outlives its allocations
  const GpuExecutorOptions options_;
  const int64_t row_bytes_;
  const int64_t num_static_;
  const int64_t num_constant_;
  PlanCheck check_;
  Staging staging_ = Staging::kGather;
  Array<std::byte> lines_{*backend_};
  Array<std::byte> static_rows_{*backend_};
  PinnedBytes<Backend> victims_{*backend_};
  PinnedBytes<Backend> constant_rows_{*backend_};
  VictimPrefetcherOnBackend<Backend>
      prefetch_;  // its thread reads victims_, so it ends before they are freed
  // Of the plan that is replayed.
  std::vector<uint8_t> source_now_;
  std::vector<int64_t> slot_now_;
  std::vector<uint8_t> far_source_;
  std::vector<int64_t> far_slot_;
  std::vector<uint8_t> is_kept_;
  std::vector<int64_t> spilled_now_;
  std::vector<int64_t> inserted_now_;
  std::vector<int32_t> row_of_now_;
  std::vector<int32_t> place_now_;
  std::vector<int64_t> starts_now_;
  std::vector<std::byte*> bases_now_;
  Array<uint8_t> source_{*backend_};
  Array<int64_t> slot_{*backend_};
  Array<int64_t> evict_line_{*backend_};
  Array<int64_t> evict_slot_{*backend_};
  Array<int64_t> spill_position_{*backend_};
  Array<int64_t> spill_slot_{*backend_};
  Array<int64_t> insert_position_{*backend_};
  Array<int64_t> insert_line_{*backend_};
  // Of one with several targets.
  Array<std::byte> scratch_{*backend_};
  Array<int32_t> row_of_{*backend_};
  Array<int32_t> place_{*backend_};
  Array<int64_t> starts_{*backend_};
  Array<std::byte*> bases_{*backend_};
  typename Backend::Event delivered_{*backend_};
};

}  // namespace lsm
