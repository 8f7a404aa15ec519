// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lsm::nvme {

/// Part of a transfer's memory.
struct Segment {
  std::byte* data;
  size_t bytes;
};

/// The bytes of an emulated namespace's blocks; read-only unless told otherwise.
class BlockSource {
 public:
  virtual ~BlockSource() = default;

  virtual uint64_t bytes() const = 0;
  /// Reads from `offset` on into the segments, one after the other. Bytes past the end are zero.
  /// Returns false if the bytes cannot be read.
  virtual bool read(uint64_t offset, std::span<const Segment> segments) = 0;
  virtual bool writable() const { return false; }
  /// Writes the segments, one after the other, from `offset` on. Returns false if it cannot.
  virtual bool write(uint64_t /*offset*/, std::span<const Segment> /*segments*/) { return false; }
  /// Puts everything written on the medium. Returns false if it cannot.
  virtual bool flush() { return true; }
};

/// An ordinary file, through the page cache.
class FileBlocks final : public BlockSource {
 public:
  /// `most_bytes`: length of the visible part; 0: the whole file. Throws SystemError if the file
  /// cannot be opened.
  explicit FileBlocks(std::string path, uint64_t most_bytes = 0, bool writable = false);
  ~FileBlocks() override;
  FileBlocks(const FileBlocks&) = delete;
  FileBlocks& operator=(const FileBlocks&) = delete;

  uint64_t bytes() const override { return bytes_; }
  bool read(uint64_t offset, std::span<const Segment> segments) override;
  bool writable() const override { return writable_; }
  bool write(uint64_t offset, std::span<const Segment> segments) override;
  bool flush() override;

 private:
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
  bool writable_ = false;
};

/// Memory that the caller owns.
class MemoryBlocks final : public BlockSource {
 public:
  explicit MemoryBlocks(std::span<const std::byte> memory) : memory_(memory) {}

  uint64_t bytes() const override { return memory_.size(); }
  bool read(uint64_t offset, std::span<const Segment> segments) override;

 private:
  std::span<const std::byte> memory_;
};

}  // namespace lsm::nvme
