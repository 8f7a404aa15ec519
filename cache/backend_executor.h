// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// DeviceExecutor on a Backend.
#pragma once

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>
#include <vector>

#include "cache/device_executor.h"
#include "cache/device_prefetch.h"
#include "cache/staged_runs.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
#include "kernels/gather/row_copy.h"

namespace lsm {

/// The rows of a batch, wherever the plan found them, as CopyRows reads them.
struct TierRows {
  static constexpr int kNumTiers = 6;  // RowSource, and last: prefetched

  const std::byte* tier[kNumTiers];  // kStorage: the staged rows, or null if they are there already
  const uint8_t* tier_of;            // [n]
  const int64_t* slot;               // [n]
  std::byte* out;
  int64_t row_bytes;

  LSM_HOST_DEVICE const std::byte* source(int64_t i) const {
    assert(tier_of[i] < kNumTiers && slot[i] >= 0);
    const std::byte* const rows = tier[tier_of[i]];
    return rows == nullptr ? nullptr : rows + slot[i] * row_bytes;
  }
  LSM_HOST_DEVICE std::byte* target(int64_t i) const { return out + i * row_bytes; }
};

template <class Backend>
class BackendExecutor final : public DeviceExecutor {
 public:
  BackendExecutor(std::unique_ptr<Backend> backend, std::unique_ptr<Backend> copies,
                  const DeviceExecutorOptions& options, Storage& storage,
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

  ~BackendExecutor() override { backend_->drain(); }

  void replay(const PlanMoves& plan, std::span<const std::byte> staged,
              std::span<std::byte> out) override {
    const size_t bytes = plan.source.size() * static_cast<size_t>(row_bytes_);
    check_argument(staged.size() == bytes && out.size() == bytes, "staged, out: expected ",
                   plan.source.size(), " rows of ", row_bytes_, " bytes, got ", staged.size(),
                   " and ", out.size(), " bytes");
    check_(plan);
    backend_->enter();
    gather(plan, staged.data(), out.data());
    const auto move = [&](const std::byte* from, std::span<const int64_t> from_row,
                          Array<int64_t>& from_array, std::byte* to,
                          std::span<const int64_t> to_row, Array<int64_t>& to_array) {
      if (from_row.empty()) return;
      const NumberedRows rows{from, from_array.upload(from_row), to, to_array.upload(to_row),
                              row_bytes_};
      copy_rows_on(*backend_, static_cast<int64_t>(from_row.size()), row_bytes_,
                   alignment_bits(row_bytes_, from, to), rows);
    };
    move(lines_.data(), plan.evict_line, evict_line_, victims_.data(), plan.evict_slot,
         evict_slot_);
    move(out.data(), plan.spill_position, spill_position_, victims_.data(), plan.spill_slot,
         spill_slot_);
    move(out.data(), plan.insert_position, insert_position_, lines_.data(), plan.insert_line,
         insert_line_);
    prefetch_.mark_replayed();
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
  int64_t device_bytes() const override {
    return (options_.num_lines + num_static_ + options_.prefetch_rows) * row_bytes_;
  }
  int64_t pinned_bytes() const override {
    return (options_.victim_slots + num_constant_ + options_.prefetch_rows) * row_bytes_;
  }

 private:
  template <class T>
  using Array = BackendArray<T, Backend>;
  static constexpr int64_t kFillRows = 1 << 16;  // rows of one read while filling
  static constexpr uint8_t kPrefetched = TierRows::kNumTiers - 1;

  void read(Storage& storage, std::span<const int64_t> ids, std::byte* target) {
    for (size_t begin = 0; begin < ids.size(); begin += kFillRows) {
      const auto part = ids.subspan(begin, std::min<size_t>(kFillRows, ids.size() - begin));
      const size_t bytes = part.size() * static_cast<size_t>(row_bytes_);
      // On an error or a time-out wait() sees to it that nothing is written any more.
      const RowRead rows{part, {}, {target, bytes}};
      storage.submit({&rows, 1}).front()->wait(options_.timeout_secs);
      target += bytes;
    }
  }

  void fill_static(Storage& storage, std::span<const int64_t> ids) {
    std::vector<std::byte> part;
    for (size_t begin = 0; begin < ids.size(); begin += kFillRows) {
      const auto part_ids = ids.subspan(begin, std::min<size_t>(kFillRows, ids.size() - begin));
      part.resize(part_ids.size() * static_cast<size_t>(row_bytes_));
      read(storage, part_ids, part.data());
      backend_->upload(static_rows_.data() + static_cast<int64_t>(begin) * row_bytes_, part.data(),
                       part.size());
      backend_->synchronize();
    }
  }

  /// Storage rows are numbered by position, and prefetched ones by their place in that buffer.
  void gather(const PlanMoves& plan, const std::byte* staged, std::byte* out) {
    const int64_t count = static_cast<int64_t>(plan.source.size());
    if (count == 0) return;
    source_now_.assign(plan.source.begin(), plan.source.end());
    slot_now_.assign(plan.slot.begin(), plan.slot.end());
    const int64_t num_prefetched = prefetch_.finish(plan);
    int64_t num_victims = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (source_now_[i] == static_cast<uint8_t>(RowSource::kStorage)) slot_now_[i] = i;
      if (source_now_[i] != static_cast<uint8_t>(RowSource::kVictim)) continue;
      if (num_victims < num_prefetched) {
        source_now_[i] = kPrefetched;
        slot_now_[i] = num_victims;
      }
      ++num_victims;
    }
    if (staging_ == Staging::kCopy) copy_staged(staged, out);
    const TierRows rows{{static_rows_.data(), lines_.data(), victims_.data(), constant_rows_.data(),
                         staging_ == Staging::kCopy ? nullptr : staged, prefetch_.rows()},
                        source_.upload(source_now_),
                        slot_.upload(slot_now_),
                        out,
                        row_bytes_};
    const uintptr_t alignment =
        alignment_bits(row_bytes_, lines_.data(), static_rows_.data(), victims_.data(),
                       constant_rows_.data(), staged, prefetch_.rows(), out);
    copy_rows_on(*backend_, count, row_bytes_, alignment, rows);
  }

  /// Before the gather, which writes what the runs should not have.
  void copy_staged(const std::byte* staged, std::byte* out) {
    for_each_staged_run(source_now_, slot_now_, row_bytes_,
                        [&](int64_t first, int64_t from, int64_t count) {
                          backend_->copy(out + first * row_bytes_, staged + from * row_bytes_,
                                         static_cast<size_t>(count * row_bytes_));
                        });
  }

  const std::unique_ptr<Backend> backend_;  // outlives what it allocated
  const DeviceExecutorOptions options_;
  const int64_t row_bytes_;
  const int64_t num_static_;
  const int64_t num_constant_;
  PlanCheck check_;
  Staging staging_ = Staging::kGather;
  Array<std::byte> lines_{*backend_};
  Array<std::byte> static_rows_{*backend_};
  PinnedBytes<Backend> victims_{*backend_};
  PinnedBytes<Backend> constant_rows_{*backend_};
  DevicePrefetch<Backend> prefetch_;  // its thread reads victims_, so it ends before they go
  // Of the plan that is replayed.
  std::vector<uint8_t> source_now_;
  std::vector<int64_t> slot_now_;
  Array<uint8_t> source_{*backend_};
  Array<int64_t> slot_{*backend_};
  Array<int64_t> evict_line_{*backend_};
  Array<int64_t> evict_slot_{*backend_};
  Array<int64_t> spill_position_{*backend_};
  Array<int64_t> spill_slot_{*backend_};
  Array<int64_t> insert_position_{*backend_};
  Array<int64_t> insert_line_{*backend_};
};

}  // namespace lsm
