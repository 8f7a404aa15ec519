// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace lsm {

/// An array of trivial T in the memory of a Backend, which outlives it. Keeps its memory when it
/// shrinks. Grows by a quarter more than requested, so that steps of about the same size allocate
/// nothing. Memory is freed in the order of the backend's calls: only the backend may use it, or
/// code that waits for the backend.
template <class T, class Backend>
class BackendArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit BackendArray(Backend& backend) : backend_(&backend) {}
  ~BackendArray() { backend_->release(data_); }
  BackendArray(const BackendArray&) = delete;
  BackendArray& operator=(const BackendArray&) = delete;

  T* data() const { return data_; }
  int64_t capacity() const { return capacity_; }

  /// Makes room for `count` elements. Keeps the first `kept`; the others are not initialised.
  T* grow(int64_t count, int64_t kept = 0) {
    if (count <= capacity_ && data_ != nullptr) return data_;
    const int64_t capacity = count + count / 4 + 1;
    BackendArray larger(*backend_);
    larger.data_ = static_cast<T*>(backend_->allocate(static_cast<size_t>(capacity) * sizeof(T)));
    backend_->copy(larger.data_, data_, static_cast<size_t>(kept) * sizeof(T));
    std::swap(data_, larger.data_);
    capacity_ = capacity;
    return data_;
  }

  /// As grow(), with zeros in the new part: for an array that is read whole before it is written.
  T* grow_zeroed(int64_t count) {
    const T* const before = data_;
    if (grow(count) != before) {
      backend_->fill(data_, 0, static_cast<size_t>(capacity_) * sizeof(T));
    }
    return data_;
  }

  /// Resizes to exactly `count` elements with every byte `byte`; for arrays of a known size.
  T* assign(int64_t count, int byte) {
    backend_->release(std::exchange(data_, nullptr));
    capacity_ = count;
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    data_ = static_cast<T*>(backend_->allocate(bytes > 0 ? bytes : 1));
    backend_->fill(data_, byte, bytes);
    return data_;
  }

  /// Replaces the contents by `values`, which may change as soon as this returns.
  T* upload(std::span<const T> values) {
    grow(static_cast<int64_t>(values.size()));
    backend_->upload(data_, values.data(), values.size_bytes());
    return data_;
  }

 private:
  Backend* backend_;
  T* data_ = nullptr;
  int64_t capacity_ = 0;
};

/// Host memory that the Backend, which outlives it, accesses too.
template <class Backend>
class PinnedBytes {
 public:
  explicit PinnedBytes(Backend& backend) : backend_(&backend) {}
  ~PinnedBytes() {
    if (data_ != nullptr) backend_->release_pinned(data_);
  }
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;

  std::byte* data() const { return data_; }

  /// Allocates `bytes` bytes, not initialised. At most one call.
  void assign(int64_t bytes) {
    if (bytes > 0) data_ = static_cast<std::byte*>(backend_->allocate_pinned(bytes));
  }

 private:
  Backend* backend_;
  std::byte* data_ = nullptr;
};

}  // namespace lsm
