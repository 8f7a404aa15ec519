// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Long transfers that write, over any transport. The test compares the images with the reference
// once the guest is off.
//
// Controller C: namespaces 1 (512 B blocks) and 2 (4 KiB blocks) are written to. Namespace 3 is
// read-only. Of namespace 4, the block at kBadWrite cannot be written, that at kBadRead cannot be
// read, and flushes fail.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstring>
#include <memory>
#include <string>

#include "kernels/io/engines/open_transfers.h"
#include "tests/guest/harness.h"

namespace lsm::guest {

inline constexpr int64_t kPage = 4096;
inline constexpr int64_t kPartitions = 4;
inline constexpr int64_t kFrame = 131 * kPage;  // no multiple of a chunk
inline constexpr int64_t kBadWrite = 1 << 20;
inline constexpr int64_t kBadRead = 2 << 20;

/// A frame of memory, as the trainer's: page-aligned.
class Frame {
 public:
  explicit Frame(int64_t bytes = kFrame)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(mmap(nullptr, static_cast<size_t>(bytes),
                                           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                                           0))) {
    expect(data_ != MAP_FAILED, "no memory for a frame");
  }
  ~Frame() { munmap(data_, static_cast<size_t>(bytes_)); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  std::byte* data() const { return data_; }
  void fill(const char* from) { std::memcpy(data_, from, static_cast<size_t>(bytes_)); }
  bool equals(const char* bytes) const {
    return std::memcmp(data_, bytes, static_cast<size_t>(bytes_)) == 0;
  }
  Swap write(int64_t to) const { return {data_, bytes_, to, {}}; }
  Swap read(int64_t from) const { return {data_, bytes_, {}, from}; }

 private:
  const int64_t bytes_;
  std::byte* const data_;
};

inline std::unique_ptr<Transfers> open_writable(const std::string& transport,
                                                const std::string& name,
                                                const TransferOptions& options = {}) {
  nvme::NvmeOptions nvme;
  nvme.transport.transport = transport;
  return open_transfers("nvme", name, options, DirectMode::kAuto, nvme);
}

inline constexpr double kSwapSecs = 60.0;

/// Bytes of partition `p` as version `version` of it: a part of the image b1, which the test has.
inline const char* reference(const Bytes& image, int64_t p, int64_t version) {
  return image.data() + ((version * kPartitions + p) * 131 % 1024) * kPage;
}

/// As training moves them: all partitions are written, then each is replaced by the next in a swap.
/// At the end partition p is in slot 0 as version 0 and in slot 1 as version 1.
inline void check_partitions(const std::string& transport, const std::string& name,
                             const TransferOptions& options) {
  const Bytes image = file_bytes("/images/b1");
  const auto offset = [](int64_t p, int64_t slot) { return (slot * kPartitions + p) * kFrame; };
  Frame frame;
  {
    const auto transfers = open_writable(transport, name, options);
    for (int64_t p = 0; p < kPartitions; ++p) {
      frame.fill(reference(image, p, 0));
      transfers->swap(frame.write(offset(p, 0)), kSwapSecs);
    }
    for (int64_t p = 0; p < kPartitions; ++p) {
      frame.fill(reference(image, p, 1));
      Swap swap = frame.write(offset(p, 1));
      swap.read_from = offset((p + 1) % kPartitions, 0);
      transfers->swap(swap, kSwapSecs);
      expect(frame.equals(reference(image, (p + 1) % kPartitions, 0)),
             concat("partition ", (p + 1) % kPartitions, " was read wrong during a write"));
    }
    transfers->sync();
  }
  const auto transfers = open_writable(transport, name);
  for (int64_t p = 0; p < kPartitions; ++p) {
    for (int64_t slot = 0; slot < 2; ++slot) {
      transfers->swap(frame.read(offset(p, slot)), kSwapSecs);
      expect(frame.equals(reference(image, p, slot)), concat("slot ", slot, " of ", p));
    }
  }
}

/// A frame of at most `queue_depth` chunks takes one doorbell, of any number one per batch.
inline void check_doorbells(const std::string& transport, const std::string& name) {
  Frame frame;
  const auto transfers =
      open_writable(transport, name, {.queue_depth = 33, .chunk_bytes = 4 * kPage});
  transfers->swap(frame.read(0), kSwapSecs);
  transfers->swap(frame.write(0), kSwapSecs);
  const TransferStats& stats = transfers->stats();
  expect(stats.commands == 2 * 33, concat("commands: got ", stats.commands.load()));
  expect(stats.doorbells == 2, concat("doorbells: got ", stats.doorbells.load()));
  expect(stats.bytes_written == kFrame && stats.bytes_read == kFrame, "bytes are miscounted");
}

inline void check_past_the_end(const std::string& transport, const std::string& name) {
  Frame frame;
  const auto transfers = open_writable(transport, name);
  const int64_t end = transfers->num_bytes();
  expect(end == static_cast<int64_t>(file_bytes("/images/b1").size()), "wrong size");
  for (const int64_t offset : {end, end + (1 << 20)}) {
    expect_error([&] { transfers->swap(frame.write(offset), kSwapSecs); }, "LBA out of range");
    expect_error([&] { transfers->swap(frame.read(offset), kSwapSecs); }, "LBA out of range");
  }
  transfers->sync();
}

/// A write that the drive refuses names its place and the drive's reason; reads go on.
inline void check_read_only(const std::string& transport, const std::string& name) {
  Frame frame;
  const auto transfers = open_writable(transport, name);
  expect_error([&] { transfers->swap(frame.write(kPage), kSwapSecs); },
               concat("write of ", kFrame, " bytes at offset ", kPage, ": write fault"));
  transfers->swap(frame.read(0), kSwapSecs);
  expect(frame.equals(file_bytes("/images/b1").data()), "wrong bytes after a refused write");
}

/// Errors of the medium: their command's place is named, and commands elsewhere work.
inline void check_bad_medium(const std::string& transport, const std::string& name) {
  Frame frame;
  const Bytes image = file_bytes("/images/b1");
  frame.fill(image.data());
  const auto transfers = open_writable(transport, name, {.chunk_bytes = 16 * kPage});
  expect_error([&] { transfers->swap(frame.write(kBadWrite), kSwapSecs); },
               concat("write of ", 16 * kPage, " bytes at offset ", kBadWrite, ": write fault"));
  expect_error(
      [&] { transfers->swap(frame.read(kBadRead), kSwapSecs); },
      concat("read of ", 16 * kPage, " bytes at offset ", kBadRead, ": unrecovered read error"));
  frame.fill(image.data());
  transfers->swap(frame.write(4 << 20), kSwapSecs);
  std::memset(frame.data(), 0, kFrame);
  transfers->swap(frame.read(4 << 20), kSwapSecs);
  expect(frame.equals(image.data()), "wrong bytes next to the bad ones");
  expect_error([&] { transfers->sync(); }, "flush: write fault");
}

/// Slot 0 of every partition is as check_partitions() left it.
inline void check_slots_0(const std::string& transport, const std::string& name) {
  const Bytes image = file_bytes("/images/b1");
  Frame frame;
  const auto transfers = open_writable(transport, name);
  for (int64_t p = 0; p < kPartitions; ++p) {
    transfers->swap(frame.read(p * kFrame), kSwapSecs);
    expect(frame.equals(reference(image, p, 0)), concat("slot 0 of ", p, " was changed"));
  }
}

[[noreturn]] inline void write_until_killed(const std::string& transport, const std::string& name,
                                            int pipe) {
  Frame frame;
  std::memset(frame.data(), 0xa5, kFrame);
  const auto transfers = open_writable(transport, name, {.chunk_bytes = kPage});
  for (;;) {
    for (int64_t p = 0; p < kPartitions; ++p) {
      transfers->swap(frame.write((kPartitions + p) * kFrame), kSwapSecs);
    }
    if (write(pipe, "w", 1) != 1) _exit(2);
  }
}

/// A process is killed while it writes slot 1 of partitions. Slot 0 is what it was, and the next
/// process takes the drive and writes slot 1 whole.
inline void check_killed_writer(const std::string& transport, const std::string& name) {
  for (const int after_ms : {0, 3, 17}) {
    int ends[2];
    expect(pipe2(ends, O_CLOEXEC) == 0, "no pipe");
    const pid_t child = fork();
    if (child == 0) {
      try {
        write_until_killed(transport, name, ends[1]);
      } catch (...) {
        _exit(1);
      }
    }
    close(ends[1]);
    pollfd writing{ends[0], POLLIN, 0};
    const bool writes = poll(&writing, 1, 60'000) == 1 && (writing.revents & POLLIN) != 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    close(ends[0]);
    expect(writes && WIFSIGNALED(status), concat("the writer ended by itself: ", status));
    check_slots_0(transport, name);
  }
  check_partitions(transport, name, {});
}

inline void run_transfer_checks(Checks& checks, const std::string& transport,
                                const std::string& drive) {
  checks.run("partitions", [&] {
    for (const std::string& name : {drive, drive + "@2"}) {
      for (const auto& [queue_depth, chunk_pages] :
           {std::pair{1, 16}, {3, 2048}, {32, 16}, {8, 512}}) {
        check_partitions(transport, name,
                         {.queue_depth = queue_depth, .chunk_bytes = chunk_pages * kPage});
      }
    }
  });
  checks.run("doorbells", [&] { check_doorbells(transport, drive); });
  checks.run("past_the_end", [&] { check_past_the_end(transport, drive + "@2"); });
  checks.run("read_only", [&] { check_read_only(transport, drive + "@3"); });
  checks.run("bad_medium", [&] { check_bad_medium(transport, drive + "@4"); });
}

}  // namespace lsm::guest
