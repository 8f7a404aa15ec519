// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/gather/gpu_gather.h"
#include "tests/emulated/tests.h"
#include "tests/gpu/bench.h"
#include "tests/gpu/figures.h"

namespace lsm::testing {
namespace {

constexpr int kSets = 3;  // that inputs rotate among
constexpr int64_t kPatternBytes = 1 << 20;

std::vector<std::byte> random_pattern() {
  Random random(21);
  std::vector<uint64_t> words(kPatternBytes / sizeof(uint64_t));
  for (uint64_t& word : words) word = random.next();
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

/// A table, a pattern over and over, and ids of its rows.
class Gathers {
 public:
  explicit Gathers(const BenchSizes& sizes) : sizes_(sizes), pattern_(random_pattern()) {
    for (auto& out : outs_) out = std::make_unique<GpuBytes>(sizes.batch_bytes);
    fill(near_.data(), near_.bytes());
    fill(far_.data(), static_cast<int64_t>(far_.size()));
  }

  void run() {
    const double copy = rate_of_copies("copy in GPU memory", near_.data(), 2, "GB/s, both ways");
    const double bus = rate_of_copies("copy to the GPU", far_.data(), 1, "GB/s");
    for (const int64_t row_bytes : kRowBytes) {
      set_ids(near_.bytes() / row_bytes, sizes_.batch_bytes / row_bytes);
      for (const auto locks : {LineLocks::kNone, LineLocks::kDevice, LineLocks::kSystem}) {
        run_near(row_bytes, locks, copy);
      }
      set_ids(static_cast<int64_t>(far_.size()) / row_bytes, far_batch() / row_bytes);
      run_far(row_bytes, bus);
    }
  }

 private:
  int64_t far_batch() const { return std::min<int64_t>(sizes_.batch_bytes, sizes_.far_bytes / 4); }

  void fill(std::byte* target, int64_t bytes) const {
    for (int64_t at = 0; at < bytes; at += kPatternBytes) {
      check_cuda(cudaMemcpyAsync(target + at, pattern_.data(), std::min(kPatternBytes, bytes - at),
                                 cudaMemcpyDefault, stream_.get()),
                 "fill a table");
    }
    check_cuda(cudaStreamSynchronize(stream_.get()), "fill a table");
  }

  /// `counted`: times that each byte counts, as for the gathers next to it.
  double rate_of_copies(const char* name, const std::byte* source, int counted, const char* unit) {
    const int64_t bytes = source == far_.data() ? far_batch() : sizes_.batch_bytes;
    const int64_t starts = (source == far_.data() ? sizes_.far_bytes : sizes_.table_bytes) / bytes;
    const auto seconds = seconds_in_stream(stream_.get(), sizes_.repeats, [&](int i) {
      check_cuda(cudaMemcpyAsync(outs_[i % kSets]->data(), source + i % starts * bytes, bytes,
                                 cudaMemcpyDefault, stream_.get()),
                 "copy");
    });
    return print({.name = name,
                  .sizes = {{"bytes", bytes}},
                  .unit = unit,
                  .values = rates(1e-9 * counted * bytes, seconds)});
  }

  void set_ids(int64_t num_rows, int64_t count) {
    Random random(22);
    for (auto& ids : ids_) {
      ids.resize(static_cast<size_t>(count));
      for (int64_t& id : ids) id = random.between(0, num_rows - 1);
    }
    for (int set = 0; set < kSets; ++set) {
      placed_[set] = std::make_unique<GpuBytes>(bytes_of(ids_[set]));
    }
  }

  GpuGather gather(const std::byte* source, int64_t row_bytes, int i) const {
    const int set = i % kSets;
    return {source,  placed_[set]->as<int64_t>(), outs_[set]->data(),
            nullptr, std::ssize(ids_[set]),       row_bytes};
  }

  void run_near(int64_t row_bytes, LineLocks locks, double copy) {
    const GpuBytes references(bytes_of(std::vector<uint32_t>(near_.bytes() / row_bytes)));
    const auto seconds = seconds_in_stream(stream_.get(), sizes_.repeats, [&](int i) {
      GpuGather rows = gather(near_.data(), row_bytes, i);
      if (locks != LineLocks::kNone) rows.references = references.as<uint32_t>();
      gather_on_gpu(rows, locks, kDevice, reinterpret_cast<intptr_t>(stream_.get()));
    });
    check_rows(row_bytes);
    const char* const names[] = {"no locks", "locks of the device", "locks of the system"};
    print({.name = "gather",
           .sizes = {{"row_bytes", row_bytes}, {"rows", std::ssize(ids_[0])}},
           .variant = names[static_cast<int>(locks)],
           .unit = "GB/s, both ways",
           .values = rates(2e-9 * row_bytes * std::ssize(ids_[0]), seconds),
           .beside = copy,
           .beside_what = "copy in GPU memory"});
  }

  void run_far(int64_t row_bytes, double bus) {
    const auto seconds = seconds_in_stream(stream_.get(), sizes_.repeats, [&](int i) {
      gather_on_gpu(gather(far_.data(), row_bytes, i), LineLocks::kNone, kDevice,
                    reinterpret_cast<intptr_t>(stream_.get()));
    });
    check_rows(row_bytes);
    print({.name = "gather of far rows",
           .sizes = {{"row_bytes", row_bytes}, {"rows", std::ssize(ids_[0])}},
           .unit = "GB/s",
           .values = rates(1e-9 * row_bytes * std::ssize(ids_[0]), seconds),
           .beside = bus,
           .beside_what = "copy to the GPU"});
  }

  /// The first rows that the last call of every set gathered.
  void check_rows(int64_t row_bytes) const {
    for (int set = 0; set < std::min(kSets, sizes_.repeats); ++set) {
      const int64_t count = std::min<int64_t>(std::ssize(ids_[set]), 1000);
      std::vector<std::byte> got(static_cast<size_t>(count * row_bytes));
      check_cuda(cudaMemcpyAsync(got.data(), outs_[set]->data(), got.size(), cudaMemcpyDeviceToHost,
                                 stream_.get()),
                 "fetch rows");
      check_cuda(cudaStreamSynchronize(stream_.get()), "fetch rows");
      for (int64_t i = 0; i < count; ++i) {
        const std::byte* const expected = &pattern_[ids_[set][i] * row_bytes % kPatternBytes];
        LSM_EXPECT(std::memcmp(&got[i * row_bytes], expected, row_bytes) == 0, "row ", i, " of ",
                   row_bytes, " bytes is wrong");
      }
    }
  }

  struct Table : GpuBytes {
    explicit Table(int64_t bytes) : GpuBytes(static_cast<size_t>(bytes)), bytes_(bytes) {}
    int64_t bytes() const { return bytes_; }

   private:
    int64_t bytes_;
  };

  const BenchSizes sizes_;
  const std::vector<std::byte> pattern_;
  const CudaStream stream_{kDevice};
  const Table near_{sizes_.table_bytes};
  const PinnedBlock far_{static_cast<size_t>(sizes_.far_bytes)};
  std::array<std::unique_ptr<GpuBytes>, kSets> outs_, placed_;
  std::array<std::vector<int64_t>, kSets> ids_;
};

}  // namespace

void bench_gathers(const BenchSizes& sizes) {
  Gathers(sizes).run();
}

}  // namespace lsm::testing
