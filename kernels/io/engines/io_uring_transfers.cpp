// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/engines/io_uring_transfers.h"

#include <liburing.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/core/check.h"

namespace lsm {
namespace {

// Interval at which a wait for the disk checks its deadline.
constexpr int64_t kDeadlinePollNs = 100'000'000;

void check_call(int result, const char* call) {
  if (result >= 0) return;
  throw SystemError(-result, "io_uring",
                    concat(call, ": ", std::strerror(-result), "; use storage.engine=posix"));
}

}  // namespace

class IoUringTransfers::Ring {
 public:
  explicit Ring(unsigned depth) : slots_(depth) {
    check_call(io_uring_queue_init(depth, &ring_, 0), "io_uring_queue_init");
  }
  ~Ring() { io_uring_queue_exit(&ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  size_t depth() const { return slots_.size(); }
  SwapChunk& slot(size_t index) { return slots_[index]; }

  void issue(size_t index, int descriptor) {
    const SwapChunk& chunk = slots_[index];
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);  // never null: as many entries as slots
    const auto bytes = static_cast<unsigned>(chunk.bytes_left());
    const auto offset = static_cast<uint64_t>(chunk.position());
    if (chunk.writes) {
      io_uring_prep_write(entry, descriptor, chunk.address(), bytes, offset);
    } else {
      io_uring_prep_read(entry, descriptor, chunk.address(), bytes, offset);
    }
    io_uring_sqe_set_data64(entry, index);
  }

  /// Submits the prepared transfers. Returns the next completion: (slot, result). Throws
  /// TimeoutError at the deadline.
  std::pair<size_t, int64_t> wait(const Deadline& deadline) {
    for (;;) {
      __kernel_timespec timeout{0, kDeadlinePollNs};
      io_uring_cqe* completion = nullptr;
      const int result =
          io_uring_submit_and_wait_timeout(&ring_, &completion, 1, &timeout, nullptr);
      if (result < 0 && result != -ETIME && result != -EINTR && result != -EAGAIN &&
          result != -EBUSY) {
        check_call(result, "io_uring_enter");
      }
      if (io_uring_peek_cqe(&ring_, &completion) == 0) {
        const std::pair<size_t, int64_t> done{io_uring_cqe_get_data64(completion), completion->res};
        io_uring_cqe_seen(&ring_, completion);
        return done;
      }
      if (deadline.passed()) throw TimeoutError("");
    }
  }

 private:
  std::vector<SwapChunk> slots_;
  io_uring ring_{};
};

IoUringTransfers::IoUringTransfers(std::string path, const TransferOptions& options,
                                   DirectMode direct)
    : Transfers("io_uring", path, options),
      file_(std::move(path), direct, options.read_only),
      ring_(std::make_unique<Ring>(static_cast<unsigned>(options.queue_depth))) {}

IoUringTransfers::~IoUringTransfers() = default;

void IoUringTransfers::run(SwapChunks& chunks, const Deadline& deadline) {
  int64_t next = 0;
  size_t in_flight = 0;
  const auto start = [&](size_t slot) {
    if (next == chunks.count() || chunks.failed()) return;
    ring_->slot(slot) = chunks.start(next++);
    ring_->issue(slot, file_.descriptor());
    ++in_flight;
  };
  for (size_t slot = 0; slot < ring_->depth(); ++slot) start(slot);
  while (in_flight > 0) {
    const auto [slot, result] = ring_->wait(deadline);
    switch (complete(chunks, ring_->slot(slot), result)) {
      case Next::kAgain:
        if (deadline.passed()) throw TimeoutError("");
        ring_->issue(slot, file_.descriptor());
        break;
      case Next::kEnd:
        --in_flight;
        start(slot);
        break;
      case Next::kLost:
        break;  // stays in flight
    }
  }
}

}  // namespace lsm
