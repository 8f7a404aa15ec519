// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Checks, random numbers and files of rows whose bytes are known, for all native tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/core/hash.h"
#include "kernels/core/tensor_view.h"
#include "kernels/io/engines/open_storage.h"

namespace lsm::testing {

/// Longer than any wait that ends.
inline constexpr double kTimeoutSecs = 60;

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws Failure, saying what was being done, unless `condition` holds. For the fuzzer, too, and
/// for any thread whose errors are passed on, which doctest's own checks are not.
#define LSM_EXPECT(condition, ...)                                                         \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      throw ::lsm::testing::Failure(                                                       \
          ::lsm::concat(__FILE__, ":", __LINE__, ": " #condition " (", __VA_ARGS__, ")")); \
    }                                                                                      \
  } while (false)

/// Expects an Error whose message contains `part`.
template <class Error>
void expect_throw(const std::string& part, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    LSM_EXPECT(std::string(error.what()).find(part) != std::string::npos, error.what());
    return;
  }
  throw Failure("expected an error: ..." + part);
}

/// splitmix64: the same numbers from the same seed everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() { return mix64(state_ += 0x9E3779B97F4A7C15ULL); }
  /// In [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <class T>
  const T& pick(const std::vector<T>& values) {
    return values[next() % values.size()];
  }

 private:
  uint64_t state_;
};

/// The values, as the library's functions take them.
template <class T>
TensorView view_of(const std::vector<T>& values) {
  TensorView view;
  view.data = const_cast<T*>(values.data());
  view.dtype = dtype_of<T>();
  view.num_dims = 1;
  view.shape[0] = static_cast<int64_t>(values.size());
  view.strides[0] = 1;
  return view;
}

/// Distinct ids below `num_ids`, low ones more often, in random order.
inline std::vector<int64_t> skewed_ids(Random& random, int64_t num_ids, int64_t count) {
  std::vector<int64_t> ids;
  std::vector<bool> taken(static_cast<size_t>(num_ids));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = random.between(0, random.between(0, num_ids - 1));
    if (taken[static_cast<size_t>(id)]) continue;
    taken[static_cast<size_t>(id)] = true;
    ids.push_back(id);
  }
  return ids;
}

/// Random bytes, into which all rows of the tests are windows. Longer ones start again; no page of
/// them is the same as another one.
inline constexpr size_t kWindows = size_t{1} << 16, kRandomBytes = 2 * kWindows - 1;
const std::vector<std::byte>& bytes_of_rows();

inline size_t window_of(int64_t row) {
  return static_cast<size_t>(row) * 40'503 % kWindows;
}

/// Byte `i` of row `row` in every file of the tests.
inline std::byte byte_of(int64_t row, int64_t i) {
  return bytes_of_rows()[(window_of(row) + static_cast<size_t>(i)) % kRandomBytes];
}

/// The first `count` bytes of a row, at most 64 KiB.
inline std::span<const std::byte> bytes_of(int64_t row, size_t count) {
  LSM_EXPECT(count <= kWindows, count);
  return {&bytes_of_rows()[window_of(row)], count};
}

/// Calls visit(pointer to the first, offset in the row, count) for runs of a row's bytes. The
/// thread sanitizer takes all that is copied or compared at once for one access.
template <class Visit>
void for_runs_of_row(int64_t row, size_t row_bytes, const Visit& visit) {
  size_t at = window_of(row);
  for (size_t done = 0; done < row_bytes; at = 0) {
    const size_t count = std::min(row_bytes - done, kRandomBytes - at);
    visit(&bytes_of_rows()[at], done, count);
    done += count;
  }
}

inline bool is_row(std::span<const std::byte> bytes, int64_t row) {
  bool is_equal = true;
  for_runs_of_row(row, bytes.size(), [&](const std::byte* from, size_t at, size_t count) {
    is_equal = is_equal && std::memcmp(&bytes[at], from, count) == 0;
  });
  return is_equal;
}

inline void write_row(std::span<std::byte> out, int64_t row) {
  for_runs_of_row(row, out.size(), [&](const std::byte* from, size_t at, size_t count) {
    std::memcpy(&out[at], from, count);
  });
}

/// Feature files in a directory of their own, which goes away with them.
class RowFiles {
 public:
  explicit RowFiles(const RowLayout& layout);
  ~RowFiles() { std::filesystem::remove_all(directory_); }
  RowFiles(const RowFiles&) = delete;
  RowFiles& operator=(const RowFiles&) = delete;

  std::unique_ptr<Storage> open(const std::string& engine, const EngineOptions& options = {},
                                const nvme::NvmeOptions& nvme = {}) {
    return open_storage(engine, paths_, layout_, options, nvme);
  }
  const std::vector<std::string>& paths() const { return paths_; }
  const RowLayout& layout() const { return layout_; }

 private:
  RowLayout layout_;
  std::filesystem::path directory_;
  std::vector<std::string> paths_;
};

/// Engines that work here.
const std::vector<std::string>& engines();

}  // namespace lsm::testing
