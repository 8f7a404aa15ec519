// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "comm/mailbox.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cmath>
#include <ctime>
#include <stdexcept>

#include "kernels/core/check.h"

namespace lsm::comm {
namespace {

constexpr uint32_t kWords = 2048;  // a power of two, as positions wrap at 2^32
constexpr uint32_t kMaxWords = kWords / 2;
constexpr size_t kLineBytes = 64;

using Position = std::atomic<uint32_t>;
static_assert(Position::is_always_lock_free && sizeof(Position) == sizeof(uint32_t),
              "the kernel looks at positions, and two processes share them");

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Not FUTEX_PRIVATE_FLAG: the other side is another process.
void wake(Position& position) {
  syscall(SYS_futex, &position, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Waits until `done` holds for the position, which changes only by stores that wake.
template <class Done>
bool wait_until(Position& position, double secs, const Done& done) {
  const double deadline = now() + secs;
  while (true) {
    const uint32_t seen = position.load(std::memory_order_acquire);
    if (done(seen)) return true;
    const double left = deadline - now();
    if (left <= 0) return false;
    const double whole = std::floor(left);
    const timespec timeout{static_cast<time_t>(whole), static_cast<long>((left - whole) * 1e9)};
    // Returns at once if the position is not `seen` any more; signals and time-outs loop.
    syscall(SYS_futex, &position, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  }
}

}  // namespace

struct Mailbox::Ring {
  alignas(kLineBytes) Position written;
  alignas(kLineBytes) Position read;  // on its own cache line: each side writes only one
  alignas(kLineBytes) int64_t words[kWords];
};

size_t Mailbox::num_bytes() {
  return sizeof(Ring);
}

size_t Mailbox::max_words() {
  return kMaxWords;
}

Mailbox::Mailbox(std::byte* memory) : ring_(reinterpret_cast<Ring*>(memory)) {
  check_argument(reinterpret_cast<uintptr_t>(memory) % kLineBytes == 0,
                 "mailbox: expected memory aligned to ", kLineBytes, " bytes");
}

bool Mailbox::write(std::span<const int64_t> words) {
  check_argument(!words.empty() && words.size() <= kMaxWords, "mailbox: expected 1 to ", kMaxWords,
                 " words, got ", words.size());
  const auto count = static_cast<uint32_t>(words.size());
  const uint32_t written = ring_->written.load(std::memory_order_relaxed);  // ours
  const uint32_t used = written - ring_->read.load(std::memory_order_acquire);
  if (used + count + 1 > kWords) return false;
  ring_->words[written % kWords] = count;
  for (uint32_t i = 0; i < count; ++i) ring_->words[(written + 1 + i) % kWords] = words[i];
  ring_->written.store(written + count + 1, std::memory_order_release);
  wake(ring_->written);
  return true;
}

std::vector<int64_t> Mailbox::read() {
  const uint32_t read = ring_->read.load(std::memory_order_relaxed);  // ours
  const uint32_t available = ring_->written.load(std::memory_order_acquire) - read;
  if (available == 0) return {};
  const int64_t count = ring_->words[read % kWords];
  if (available > kWords || count < 1 || count >= int64_t{available})
    throw std::runtime_error("mailbox: another process has written into this rank's memory");
  std::vector<int64_t> words(static_cast<size_t>(count));
  for (uint32_t i = 0; i < words.size(); ++i) words[i] = ring_->words[(read + 1 + i) % kWords];
  ring_->read.store(read + static_cast<uint32_t>(count) + 1, std::memory_order_release);
  wake(ring_->read);
  return words;
}

bool Mailbox::wait_written(double secs) {
  const uint32_t read = ring_->read.load(std::memory_order_relaxed);
  return wait_until(ring_->written, secs, [=](uint32_t written) { return written != read; });
}

bool Mailbox::wait_read(double secs) {
  const uint32_t written = ring_->written.load(std::memory_order_relaxed);
  // Beyond it, too: this may be called while another thread writes.
  return wait_until(ring_->read, secs,
                    [=](uint32_t read) { return static_cast<int32_t>(read - written) >= 0; });
}

}  // namespace lsm::comm
