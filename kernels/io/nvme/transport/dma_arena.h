// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Hands out parts of large pieces of memory that a controller can reach. Pieces are expensive (a
// huge page, a system call), and a queue mostly needs one or a few pages.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

/// Thread-safe. Its parts keep it alive; it frees its pieces at its end.
class DmaArena : public std::enable_shared_from_this<DmaArena> {
 public:
  /// Makes a piece of `bytes` bytes, a multiple of kPieceBytes, or throws.
  using MakePiece = std::function<DmaMemory(size_t bytes)>;

  static constexpr size_t kPieceBytes = 2u << 20;

  static std::shared_ptr<DmaArena> create(MakePiece make_piece);

  /// Transport::allocate(). Searches contiguous memory in present pieces, then in a few new ones,
  /// whose physical layout the kernel decides.
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
