// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "cache/metadata_word.h"
#include "tests/emulated/tests.h"
#include "tests/gpu/bench.h"
#include "tests/gpu/figures.h"

namespace lsm::testing {
namespace {

constexpr int kTierSets = 2;

std::vector<int64_t> shuffled(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<int64_t> drawn(static_cast<size_t>(count));
  std::iota(drawn.begin(), drawn.end(), 0);
  for (size_t i = drawn.size() - 1; i > 0; --i) {
    std::swap(drawn[i], drawn[static_cast<size_t>(random.between(0, static_cast<int64_t>(i)))]);
  }
  return drawn;
}

/// An executor whose tiers have as many rows as a batch: row i of the files in each.
class Tiers {
 public:
  Tiers(const BenchSizes& sizes, int64_t row_bytes)
      : sizes_(sizes), row_bytes_(row_bytes), count_(sizes.tier_bytes / row_bytes) {
    in_order_.resize(static_cast<size_t>(count_));
    std::iota(in_order_.begin(), in_order_.end(), 0);
    RowFiles files({count_, row_bytes, 4096, 1});
    const auto storage = files.open("posix");
    executor_ = make_gpu_executor({count_, count_, 0, kTimeoutSecs}, *storage, in_order_, in_order_,
                                  kDevice);
    staged_ = std::make_unique<PinnedBlock>(static_cast<size_t>(count_ * row_bytes));
    for (int64_t i = 0; i < count_ * row_bytes; ++i) {
      staged_->data()[i] = byte_of(i / row_bytes, i % row_bytes);
    }
    for (auto& out : outs_) out = std::make_unique<GpuBytes>(staged_->size());
    for (int set = 0; set < kTierSets; ++set) slots_[set] = shuffled(count_, 30 + set);
    fill_tiers();
  }

  void run() {
    const double near = rate_of_copy(outs_[1]->data(), 2, "copy in GPU memory");
    const double bus = rate_of_copy(staged_->data(), 1, "copy to the GPU");
    run_tier(RowSource::kStatic, "static", near, 2);
    run_tier(RowSource::kCache, "cache", near, 2);
    run_tier(RowSource::kVictim, "victim", bus, 1);
    run_tier(RowSource::kConstant, "constant", bus, 1);
    executor_->set_staging(Staging::kGather);
    run_tier(RowSource::kStorage, "staged, read by a kernel", bus, 1);
    executor_->set_staging(Staging::kCopy);
    run_tier(RowSource::kStorage, "staged, copied first", bus, 1);
  }

 private:
  double rate_of_copy(const std::byte* source, int counted, const char* name) {
    const auto stream = reinterpret_cast<cudaStream_t>(executor_->stream());
    const size_t bytes = staged_->size();
    const auto seconds = seconds_in_stream(stream, sizes_.repeats, [&](int) {
      check_cuda(cudaMemcpyAsync(outs_[0]->data(), source, bytes, cudaMemcpyDefault, stream),
                 "copy");
    });
    return print({.name = name,
                  .sizes = {{"bytes", static_cast<int64_t>(bytes)}},
                  .unit = counted == 2 ? "GB/s, both ways" : "GB/s",
                  .values = rates(1e-9 * counted * static_cast<double>(bytes), seconds)});
  }

  /// All rows from storage to lines, and from lines on to the victim buffer.
  void fill_tiers() {
    const std::vector<int64_t> words(in_order_.size(), static_cast<int64_t>(cache::kUnknownUse));
    cache::Plan plan = plan_of(RowSource::kStorage, in_order_);
    plan.insert_position = plan.insert_line = in_order_;
    replay(plan, 0);
    plan.iteration = 1;
    plan.evict_line = plan.evict_slot = in_order_;
    plan.evict_word = words;
    replay(plan, 0);
    executor_->synchronize();
  }

  cache::Plan plan_of(RowSource tier, const std::vector<int64_t>& slots) const {
    cache::Plan plan;
    plan.source.assign(slots.size(), tier);
    plan.slot = slots;
    plan.count_sources();
    return plan;
  }

  void replay(const cache::Plan& plan, int set) {
    const bool is_staged = plan.source[0] == RowSource::kStorage;
    executor_->replay(plan, {staged_->data(), is_staged ? staged_->size() : 0},
                      {outs_[set]->data(), staged_->size()});
  }

  void run_tier(RowSource tier, const char* name, double ceiling, int counted) {
    const auto stream = reinterpret_cast<cudaStream_t>(executor_->stream());
    std::array<cache::Plan, kTierSets> plans;
    for (int set = 0; set < kTierSets; ++set) plans[set] = plan_of(tier, slots_[set]);
    const auto seconds = seconds_in_stream(stream, sizes_.repeats, [&](int i) {
      plans[i % kTierSets].iteration = ++iteration_;
      replay(plans[i % kTierSets], i % kTierSets);
    });
    executor_->synchronize();
    check_rows(tier);
    print({.name = "tier",
           .sizes = {{"row_bytes", row_bytes_}, {"rows", count_}},
           .variant = name,
           .unit = counted == 2 ? "GB/s, both ways" : "GB/s",
           .values = rates(1e-9 * counted * static_cast<double>(staged_->size()), seconds),
           .beside = ceiling,
           .beside_what = counted == 2 ? "copy in GPU memory" : "copy to the GPU"});
  }

  void check_rows(RowSource tier) const {
    const std::vector<std::byte> got = outs_[0]->fetch();
    for (int64_t i = 0; i < std::min<int64_t>(count_, 1000); ++i) {
      const int64_t row = tier == RowSource::kStorage ? i : slots_[0][static_cast<size_t>(i)];
      LSM_EXPECT(
          is_row(std::span(got).subspan(static_cast<size_t>(i * row_bytes_), row_bytes_), row),
          "tier ", int{static_cast<uint8_t>(tier)}, ", position ", i);
    }
  }

  const BenchSizes sizes_;
  const int64_t row_bytes_, count_;
  int64_t iteration_ = 1;
  std::vector<int64_t> in_order_;
  std::unique_ptr<GpuExecutor> executor_;
  std::unique_ptr<PinnedBlock> staged_;
  std::array<std::unique_ptr<GpuBytes>, kTierSets> outs_;
  std::array<std::vector<int64_t>, kTierSets> slots_;
};

}  // namespace

void bench_tiers(const BenchSizes& sizes) {
  for (const int64_t row_bytes : kRowBytes) Tiers(sizes, row_bytes).run();
}

}  // namespace lsm::testing
