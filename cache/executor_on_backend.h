// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GpuExecutor on a Backend.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cache/executor_functors.h"
#include "cache/gpu_executor.h"
#include "cache/gpu_moves_on_backend.h"
#include "cache/plan_check.h"
#include "cache/victim_prefetcher_on_backend.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
#include "kernels/gather/copy_rows_functors.h"

namespace lsm {

/// One for each kind of work; all run at the same time.
template <class Backend>
struct ExecutorBackends {
  std::unique_ptr<Backend> near;    // kernels that touch GPU memory only
  std::unique_ptr<Backend> far;     // copies over PCIe, by few blocks of a kernel
  std::unique_ptr<Backend> copies;  // the prefetcher's
};

/// Of each plan, a kernel on `near` gathers the rows that are in GPU memory, and one on `far` those
/// behind PCIe meanwhile; then a kernel on `far` writes the rows that leave into the victim buffer,
/// and one on `near` those that enter lines. `near` owns the arrays, and ends after `far`.
template <class Backend>
class ExecutorOnBackend final : public GpuExecutor {
 public:
  ExecutorOnBackend(ExecutorBackends<Backend> backends, const GpuExecutorOptions& options,
                    Storage& storage, std::span<const int64_t> static_rows,
                    std::span<const int64_t> constant_rows)
      : backend_(std::move(backends.near)),
        far_(std::move(backends.far)),
        options_(options),
        row_bytes_(storage.layout().row_bytes),
        num_static_(static_cast<int64_t>(static_rows.size())),
        num_constant_(static_cast<int64_t>(constant_rows.size())),
        check_({num_static_, options.num_lines, options.victim_slots, num_constant_}),
        prefetch_(std::move(backends.copies), *backend_, options, row_bytes_) {
    backend_->enter();
    lines_.assign(options.num_lines * row_bytes_, 0);
    static_.assign(num_static_ * row_bytes_, 0);
    victims_.assign(options.victim_slots * row_bytes_);
    constant_.assign(num_constant_ * row_bytes_);
    read(storage, constant_rows, constant_.data());
    fill_static(storage, static_rows);
  }

  ~ExecutorOnBackend() override {
    far_->drain();
    backend_->drain();
  }

  void replay(const cache::Plan& plan, std::span<const std::byte> staged,
              std::span<std::byte> out) override {
    check_rows("out", static_cast<int64_t>(plan.source.size()), out.size());
    list_staged(plan, staged);
    if (plan.on_gpu == nullptr) check_(plan);
    run_replay([&] {
      const Lists lists = begin(plan);
      list_far(plan, num_prefetched_, /*keeps_near=*/false);
      gather(lists, static_cast<int64_t>(plan.source.size()), staged.data(), out.data());
      move_kept(lists, {out.data(), nullptr, row_bytes_});
    });
  }

  void replay_to(const cache::Plan& plan, std::span<const std::byte> staged,
                 std::span<const RowTargets> targets) override {
    list_staged(plan, staged);
    check_targets(targets, static_cast<int64_t>(plan.source.size()));
    if (plan.on_gpu == nullptr) check_(plan);
    run_replay([&] {
      backend_->synchronize();  // also for the last replay's own moves
      const Lists lists = begin(plan);
      list_far(plan, 0, /*keeps_near=*/true);
      fill_scratch(lists, staged.data());
      deliver(lists, targets);
      backend_->record(delivered_);
      move_kept(lists, {scratch_.data(), lists.slot, row_bytes_});
    });
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

  void read(Storage& storage, std::span<const int64_t> rows, std::byte* target) {
    for (size_t begin = 0; begin < rows.size(); begin += kFillRows) {
      const auto part = rows.subspan(begin, std::min<size_t>(kFillRows, rows.size() - begin));
      const size_t bytes = part.size() * static_cast<size_t>(row_bytes_);
      // After an error or a time-out of wait() nothing writes to the buffer any more.
      const RowRead read{part, {}, {target, bytes}};
      storage.submit({&read, 1}).front()->wait(options_.timeout_secs);
      target += bytes;
    }
  }

  void fill_static(Storage& storage, std::span<const int64_t> rows) {
    std::vector<std::byte> part;
    const size_t most =
        static_cast<size_t>(std::clamp<int64_t>(kFillBytes / row_bytes_, 1, kFillRows));
    for (size_t begin = 0; begin < rows.size(); begin += most) {
      const auto part_rows = rows.subspan(begin, std::min<size_t>(most, rows.size() - begin));
      part.resize(part_rows.size() * static_cast<size_t>(row_bytes_));
      read(storage, part_rows, part.data());
      backend_->upload(static_.data() + static_cast<int64_t>(begin) * row_bytes_, part.data(),
                       part.size());
      backend_->synchronize();
    }
  }

  void check_rows(const char* name, int64_t num_rows, size_t num_bytes) const {
    check_argument(num_bytes == static_cast<size_t>(num_rows * row_bytes_), name, ": expected ",
                   num_rows, " rows of ", row_bytes_, " bytes, got ", num_bytes, " bytes");
  }

  /// Throws std::runtime_error once a replay has ended with an error: plans after it find rows that
  /// it has not put there.
  template <class Replay>
  void run_replay(const Replay& replay) {
    if (!std::exchange(is_between_plans_, false)) {
      throw std::runtime_error(
          "executor: an earlier plan was not replayed to its end, so rows may be wrong; its error "
          "was reported: open the features again");
    }
    backend_->enter();
    try {
      replay();
    } catch (...) {
      settle();
      throw;
    }
    is_between_plans_ = true;
  }
  /// After an error: queued work uses the plan's and the caller's memory, which may go.
  void settle() noexcept {
    try {
      far_->synchronize();
      backend_->synchronize();
    } catch (const std::exception&) {
      // The first error is the one to report.
    }
  }

  /// Begins far_position_ with the rows from storage, in the order in which they are staged, unless
  /// the GPU has that list.
  void list_staged(const cache::Plan& plan, std::span<const std::byte> staged) {
    num_staged_ = plan.counters.misses;
    check_rows("staged", num_staged_, staged.size());
    far_position_.clear();
    if (plan.on_gpu != nullptr) return;
    far_position_.assign(plan.miss_position.begin(), plan.miss_position.end());
  }
  /// Appends the positions of the rows of this tier. Without a branch per row: which rows the cache
  /// holds cannot be predicted.
  void list(const cache::Plan& plan, RowSource source) {
    size_t count = far_position_.size();
    far_position_.resize(count + plan.source.size());
    for (size_t i = 0; i < plan.source.size(); ++i) {
      far_position_[count] = static_cast<uint32_t>(i);
      count += plan.source[i] == source ? 1 : 0;
    }
    far_position_.resize(count);
  }

  /// The moves of the plan that is replayed, in the memory of the backend.
  struct Lists {
    uint8_t* tier_of;  // [n]
    int64_t* slot;     // [n]
    int64_t num_leaving;
    const uint32_t* leaving_position;  // of a row without a line
    const int64_t* leaving_line;       // or -1
    const int64_t* leaving_slot;
    int64_t num_inserted;
    const uint32_t* inserted_position;
    const int64_t* inserted_line;
    MoveArrays<Backend>* arrays;  // of the planner, or null
  };

  /// Where each row is, prefetched ones by their place in that buffer.
  Lists begin(const cache::Plan& plan) {
    victim_position_now_.assign(plan.victim_position.begin(), plan.victim_position.end());
    const Lists lists = plan.on_gpu != nullptr ? take(plan) : upload(plan);
    num_prefetched_ = prefetch_.finish(plan.victim_slot);
    if (num_prefetched_ > 0) {
      const auto prefetched =
          std::span<const uint32_t>(victim_position_now_).first(num_prefetched_);
      backend_->for_each(num_prefetched_,
                         SetTier{prefetched_.upload(prefetched), TierRows::kPrefetched,
                                 lists.tier_of, lists.slot});
    }
    return lists;
  }

  /// Of a plan that this GPU made.
  Lists take(const cache::Plan& plan) {
    const auto* const moves = dynamic_cast<const MovesOnBackend<Backend>*>(plan.on_gpu.get());
    check_argument(moves != nullptr, "plan: expected one that was made where it is replayed");
    const auto count = static_cast<int64_t>(plan.source.size());
    check_argument(moves->num_rows == count, "source: expected ", moves->num_rows, " rows, got ",
                   count);
    MoveArrays<Backend>& arrays = moves->arrays();
    return {arrays.source.data(), arrays.slot.data(),
            moves->num_leaving,   arrays.position.data(),
            arrays.line.data(),   arrays.leaving_slot.data(),
            moves->num_asking,    arrays.position.data(),
            arrays.line.data(),   &arrays};
  }

  /// Of a plan of the host.
  Lists upload(const cache::Plan& plan) {
    leaving_position_now_.assign(plan.evict_line.size(), 0);
    leaving_line_now_.assign(plan.evict_line.begin(), plan.evict_line.end());
    leaving_slot_now_.assign(plan.evict_slot.begin(), plan.evict_slot.end());
    for (size_t i = 0; i < plan.spill_position.size(); ++i) {
      leaving_position_now_.push_back(static_cast<uint32_t>(plan.spill_position[i]));
      leaving_line_now_.push_back(-1);
      leaving_slot_now_.push_back(plan.spill_slot[i]);
    }
    if (options_.victim_slots == 0) leaving_slot_now_.clear();  // all are dropped
    inserted_position_now_.assign(plan.insert_position.begin(), plan.insert_position.end());
    const bool has_leaving = !leaving_slot_now_.empty();
    return {reinterpret_cast<uint8_t*>(source_.upload(plan.source)),
            slot_.upload(plan.slot),
            static_cast<int64_t>(leaving_slot_now_.size()),
            has_leaving ? leaving_position_.upload(leaving_position_now_) : nullptr,
            has_leaving ? leaving_line_.upload(leaving_line_now_) : nullptr,
            has_leaving ? leaving_slot_.upload(leaving_slot_now_) : nullptr,
            static_cast<int64_t>(inserted_position_now_.size()),
            inserted_position_.upload(inserted_position_now_),
            inserted_line_.upload(plan.insert_line),
            nullptr};
  }

  /// Appends to far_position_ the other rows behind PCIe. Of the victims those from number
  /// `first_victim` on. keeps_near: lists rows in GPU memory too that enter a line or the victim
  /// buffer.
  void list_far(const cache::Plan& plan, int64_t first_victim, bool keeps_near) {
    far_position_.insert(far_position_.end(), victim_position_now_.begin() + first_victim,
                         victim_position_now_.end());
    if (num_constant_ > 0) list(plan, RowSource::kConstant);
    if (!keeps_near) return;
    is_kept_.assign(plan.source.size(), 0);
    for (const int64_t position : plan.spill_position) is_kept_[position] = 1;
    for (const int64_t position : plan.insert_position) is_kept_[position] = 1;
    for (const int64_t position : plan.miss_position) is_kept_[position] = 0;
    for (const uint32_t position : far_position_) is_kept_[position] = 0;
    for (size_t i = 0; i < is_kept_.size(); ++i) {
      if (is_kept_[i] != 0) far_position_.push_back(static_cast<uint32_t>(i));
    }
  }

  /// Rows of the whole list, which begins with those from storage.
  int64_t num_far(const Lists& lists) const {
    return std::ssize(far_position_) + (lists.arrays != nullptr ? num_staged_ : 0);
  }
  const uint32_t* upload_far(const Lists& lists) {
    if (lists.arrays == nullptr) return far_list_.upload(far_position_);
    uint32_t* const list = far_list_.grow(num_far(lists));
    backend_->copy(list, lists.arrays->miss_position.data(), num_staged_ * sizeof(list[0]));
    backend_->upload(list + num_staged_, far_position_.data(),
                     far_position_.size() * sizeof(list[0]));
    return list;
  }

  /// Makes work queued to `far` from now on wait for all work queued to `near`.
  void fork() {
    backend_->record(forked_);
    far_->block(forked_);
  }
  /// The opposite.
  void join() {
    far_->record(joined_);
    backend_->block(joined_);
  }

  TierRows tiers(const Lists& lists, std::byte* out) const {
    return {{static_.data(), lines_.data(), victims_.data(), constant_.data(), nullptr,
             prefetch_.rows(), scratch_.data()},
            lists.tier_of,
            lists.slot,
            out,
            row_bytes_};
  }
  /// Those of `rows` that are in GPU memory.
  static TierRows near_of(TierRows rows) {
    rows.tier[static_cast<size_t>(RowSource::kVictim)] = nullptr;
    rows.tier[static_cast<size_t>(RowSource::kConstant)] = nullptr;
    return rows;
  }

  uintptr_t tiers_alignment(const std::byte* staged) const {
    return alignment_bits(row_bytes_, lines_.data(), static_.data(), victims_.data(),
                          constant_.data(), staged, prefetch_.rows(), scratch_.data());
  }

  /// Copies all rows of the plan to `out`.
  void gather(const Lists& lists, int64_t count, const std::byte* staged, std::byte* out) {
    const TierRows rows = tiers(lists, out);
    const uint32_t* const positions = upload_far(lists);
    const std::byte* near_staged = staging_ == Staging::kResident ? staged : nullptr;
    if (staging_ == Staging::kCopy) near_staged = copied_.grow(num_staged_ * row_bytes_);
    const uintptr_t alignment = tiers_alignment(staged) |
                                alignment_bits(0, near_staged, static_cast<const std::byte*>(out));
    fork();
    if (staging_ == Staging::kCopy) {
      far_->copy(copied_.data(), staged, static_cast<size_t>(num_staged_ * row_bytes_));
      join();
    }
    const int64_t first = near_staged == nullptr ? 0 : num_staged_;
    copy_rows_on(*far_, num_far(lists) - first, row_bytes_, alignment,
                 PlacedRows{{rows, staged, positions, num_staged_}, first});
    if (near_staged != nullptr) {
      copy_rows_on(*backend_, num_staged_, row_bytes_, alignment,
                   PlacedRows{{rows, near_staged, positions, num_staged_}, 0});
    }
    copy_rows_on(*backend_, count, row_bytes_, alignment, near_of(rows));
    join();
  }

  /// Copies to the GPU the rows that lie behind PCIe, and rows that later steps need after their
  /// place may have been written. Updates the tiers and slots of the lists.
  void fill_scratch(const Lists& lists, const std::byte* staged) {
    const int64_t count = num_far(lists);
    scratch_.grow(count * row_bytes_);
    if (count == 0) return;
    const uint32_t* const positions = upload_far(lists);
    const ListedRows rows{tiers(lists, scratch_.data()), staged, positions, num_staged_};
    const bool by_copy = staging_ != Staging::kGather;
    fork();
    if (by_copy) {
      far_->copy(scratch_.data(), staged, static_cast<size_t>(num_staged_ * row_bytes_));
    }
    const int64_t first = by_copy ? num_staged_ : 0;
    copy_rows_on(*far_, count - first, row_bytes_, tiers_alignment(staged),
                 CompactRows{rows, first});
    join();
    backend_->for_each(count, SetTier{positions, TierRows::kScratch, lists.tier_of, lists.slot});
  }

  void deliver(const Lists& lists, std::span<const RowTargets> targets) {
    row_of_now_.clear();
    place_now_.clear();
    starts_now_.clear();
    bases_now_.clear();
    uintptr_t alignment = tiers_alignment(nullptr);
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
    const WantedRows copies{tiers(lists, nullptr),     row_of_.upload(row_of_now_),
                            place_.upload(place_now_), starts_.upload(starts_now_),
                            bases_.upload(bases_now_), static_cast<int64_t>(bases_now_.size())};
    copy_rows_on(*backend_, static_cast<int64_t>(row_of_now_.size()), row_bytes_, alignment,
                 copies);
  }

  /// Steps 2 and 3 of a replay.
  void move_kept(const Lists& lists, const MovedRows& moved) {
    if (lists.num_leaving > 0) {
      fork();
      copy_rows_on(*far_, lists.num_leaving, row_bytes_,
                   alignment_bits(row_bytes_, moved.rows, lines_.data(), victims_.data()),
                   LeavingRows{moved, lines_.data(), victims_.data(), lists.leaving_position,
                               lists.leaving_line, lists.leaving_slot});
      join();
    }
    copy_rows_on(*backend_, lists.num_inserted, row_bytes_,
                 alignment_bits(row_bytes_, moved.rows, lines_.data()),
                 InsertedRows{moved, lines_.data(), lists.inserted_position, lists.inserted_line});
    if (lists.arrays != nullptr) backend_->record(lists.arrays->replayed);
    prefetch_.mark_replayed();
  }

  const std::unique_ptr<Backend> backend_;  // `near`; outlives its allocations
  const std::unique_ptr<Backend> far_;
  const GpuExecutorOptions options_;
  const int64_t row_bytes_;
  const int64_t num_static_;
  const int64_t num_constant_;
  PlanCheck check_;
  Staging staging_ = Staging::kGather;
  bool is_between_plans_ = true;  // false: one is replayed, or failed to be
  Array<std::byte> lines_{*backend_};
  Array<std::byte> static_{*backend_};
  PinnedBytes<Backend> victims_{*backend_};
  PinnedBytes<Backend> constant_{*backend_};
  VictimPrefetcherOnBackend<Backend>
      prefetch_;  // its thread reads victims_, so it ends before they are freed
  // Of the plan that is replayed.
  std::vector<uint32_t> victim_position_now_;
  std::vector<uint32_t> leaving_position_now_;
  std::vector<int64_t> leaving_line_now_;
  std::vector<int64_t> leaving_slot_now_;
  std::vector<uint32_t> inserted_position_now_;
  int64_t num_prefetched_ = 0;
  int64_t num_staged_ = 0;
  std::vector<uint32_t> far_position_;
  std::vector<uint8_t> is_kept_;
  std::vector<int32_t> row_of_now_;
  std::vector<int32_t> place_now_;
  std::vector<int64_t> starts_now_;
  std::vector<std::byte*> bases_now_;
  Array<RowSource> source_{*backend_};
  Array<int64_t> slot_{*backend_};
  Array<uint32_t> prefetched_{*backend_};
  Array<uint32_t> leaving_position_{*backend_};
  Array<int64_t> leaving_line_{*backend_};
  Array<int64_t> leaving_slot_{*backend_};
  Array<uint32_t> inserted_position_{*backend_};
  Array<int64_t> inserted_line_{*backend_};
  Array<uint32_t> far_list_{*backend_};
  Array<std::byte> copied_{*backend_};  // staged rows, with Staging::kCopy
  // Of one with several targets.
  Array<std::byte> scratch_{*backend_};
  Array<int32_t> row_of_{*backend_};
  Array<int32_t> place_{*backend_};
  Array<int64_t> starts_{*backend_};
  Array<std::byte*> bases_{*backend_};
  typename Backend::Event delivered_{*backend_};
  typename Backend::Event forked_{*backend_};
  typename Backend::Event joined_{*backend_};
};

}  // namespace lsm
