// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Memory that the kernels of a batch leave to the next: states of sums, and numbers that they find
// out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/backend_array.h"
#include "kernels/core/ordered_sum.h"

namespace lsm {

template <class Backend>
int64_t read_word(Backend& backend, const int64_t* value) {
  int64_t result = 0;
  backend.download(&result, value, sizeof(result));
  backend.synchronize();
  return result;
}

/// Runs sums, whose states are zeroed for several at a time.
template <class Backend>
class SumsOnBackend {
 public:
  explicit SumsOnBackend(Backend& backend) : backend_(backend) {}

  /// Zeroes the memory of the next sums.
  void clear(int64_t num_words) {
    backend_.fill(state_.grow(num_words), 0, num_words * sizeof(uint64_t));
    num_words_used_ = 0;
  }

  /// Of up to `most` items.
  template <class Items>
  void run(const Items& items, int64_t most) {
    using Sum = OrderedSum<Items>;
    backend_.for_each_warp(Sum::num_tiles(most), Sum{items, state_.data() + num_words_used_});
    num_words_used_ += Sum::state_words(most);
  }

 private:
  Backend& backend_;
  BackendArray<uint64_t, Backend> state_{backend_};
  int64_t num_words_used_ = 0;
};

/// Numbers of nodes and edges of a batch: first those that the host knows, then those that kernels
/// find out, in order.
template <class Backend>
class SizesOnBackend {
 public:
  explicit SizesOnBackend(Backend& backend) : backend_(backend) {}

  /// Makes room for up to `num_more` further ones.
  void begin(std::span<const int64_t> known, size_t num_more) {
    sizes_.grow(static_cast<int64_t>(known.size() + num_more));
    backend_.upload(sizes_.data(), known.data(), known.size_bytes());
    count_ = known.size();
  }
  /// The place of the next, which a kernel will write.
  size_t add() { return count_++; }
  int64_t* at(size_t place) const { return sizes_.data() + place; }

  /// Valid after the next synchronize().
  void download(std::vector<int64_t>* sizes) {
    sizes->resize(count_);
    backend_.download(sizes->data(), sizes_.data(), count_ * sizeof(int64_t));
  }

 private:
  Backend& backend_;
  BackendArray<int64_t, Backend> sizes_{backend_};
  size_t count_ = 0;
};

}  // namespace lsm
