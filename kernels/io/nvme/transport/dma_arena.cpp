// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/transport/dma_arena.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/check.h"

namespace lsm::nvme {
namespace {

// New pieces that are searched for contiguous memory. Small queues fit any piece that is not
// scattered page by page; with huge pages the first one suffices.
constexpr int kContiguousTries = 8;

size_t rounded_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

std::shared_ptr<DmaArena> DmaArena::create(MakePiece make_piece) {
  return std::shared_ptr<DmaArena>(new DmaArena(std::move(make_piece)));
}

DmaMemory DmaArena::allocate(size_t bytes, DmaShape shape) {
  const size_t count = std::max<size_t>(1, rounded_up(bytes, kPageBytes) / kPageBytes);
  const std::lock_guard lock(mutex_);
  const int tries = shape == DmaShape::kContiguous ? kContiguousTries : 1;
  size_t searched = 0;
  for (int added = 0;; ++added) {
    for (; searched < pieces_.size(); ++searched) {
      const size_t first = find(pieces_[searched], count, shape);
      if (first < pieces_[searched].used.size()) return take(searched, first, count);
    }
    if (added == tries) break;
    add_piece(rounded_up(count * kPageBytes, kPieceBytes));
  }
  throw std::runtime_error(concat("no ", count * kPageBytes,
                                  " bytes of memory in one run of physical addresses; reserve huge "
                                  "pages (echo 64 > /proc/sys/vm/nr_hugepages) or make queues less "
                                  "deep"));
}

void DmaArena::add_piece(size_t bytes) {
  DmaMemory memory = make_piece_(bytes);
  const size_t num_pages = memory.pages.size();
  pieces_.push_back({std::move(memory), std::vector<bool>(num_pages)});
}

size_t DmaArena::find(const Piece& piece, size_t count, DmaShape shape) {
  const std::vector<uint64_t>& pages = piece.memory.pages;
  size_t length = 0;
  for (size_t page = 0; page < pages.size(); ++page) {
    const bool follows =
        shape == DmaShape::kPages || length == 0 || pages[page] == pages[page - 1] + kPageBytes;
    length = piece.used[page] ? 0 : follows ? length + 1 : 1;
    if (length == count) return page + 1 - count;
  }
  return pages.size();
}

DmaMemory DmaArena::take(size_t piece, size_t first_page, size_t count) {
  Piece& from = pieces_[piece];
  const auto used = from.used.begin() + static_cast<std::ptrdiff_t>(first_page);
  std::fill_n(used, count, true);
  DmaMemory memory;
  memory.data = from.memory.data + first_page * kPageBytes;
  memory.bytes = count * kPageBytes;
  const auto pages = from.memory.pages.begin() + static_cast<std::ptrdiff_t>(first_page);
  memory.pages.assign(pages, pages + static_cast<std::ptrdiff_t>(count));
  memory.owner =
      std::shared_ptr<void>(memory.data, [self = shared_from_this(), piece, first_page, count](
                                             void*) { self->give_back(piece, first_page, count); });
  std::memset(memory.data, 0, memory.bytes);
  return memory;
}

void DmaArena::give_back(size_t piece, size_t first_page, size_t count) {
  const std::lock_guard lock(mutex_);
  const auto used = pieces_[piece].used.begin() + static_cast<std::ptrdiff_t>(first_page);
  std::fill_n(used, count, false);
}

}  // namespace lsm::nvme
