// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Hands out parts of large pieces of memory that a controller can reach: pieces are dear (a huge
// page, a call to the kernel), and most of what a queue needs is a page or a few.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

/// Thread-safe. What it hands out keeps it alive; its pieces are given back with it.
class DmaArena : public std::enable_shared_from_this<DmaArena> {
 public:
  /// Makes a piece of the bytes asked for, a multiple of kPieceBytes; throws if it cannot.
  using MakePiece = std::function<DmaMemory(size_t bytes)>;

  static constexpr size_t kPieceBytes = 2u << 20;

  static std::shared_ptr<DmaArena> create(MakePiece make_piece);

  /// Transport::allocate(). Contiguous memory is looked for in what there is, then in a few new
  /// pieces; whether those have it depends on how the kernel laid them out.
  DmaMemory allocate(size_t bytes, DmaShape shape);

 private:
  struct Piece {
    DmaMemory memory;
    std::vector<bool> used;  // per page
  };

  explicit DmaArena(MakePiece make_piece) : make_piece_(std::move(make_piece)) {}
  void add_piece(size_t bytes);
  /// The first page of `count` free ones in a row; the number of pages of the piece if there are
  /// none.
  static size_t find(const Piece& piece, size_t count, DmaShape shape);
  DmaMemory take(size_t piece, size_t first_page, size_t count);
  void give_back(size_t piece, size_t first_page, size_t count);

  const MakePiece make_piece_;
  std::mutex mutex_;
  std::vector<Piece> pieces_;
};

}  // namespace lsm::nvme
