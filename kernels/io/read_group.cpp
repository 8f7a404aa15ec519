// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/read_group.h"

#include <algorithm>
#include <stdexcept>

namespace lsm {

ReadGroup::ReadGroup(ReadPlan plan, std::vector<std::shared_ptr<Request>> requests,
                     std::atomic<int64_t>& outstanding)
    : plan_(std::move(plan)), requests_(std::move(requests)), outstanding_(outstanding) {
  outstanding_.fetch_add(static_cast<int64_t>(plan_.extents.size()), std::memory_order_relaxed);
  std::vector<int64_t> num_pieces(requests_.size(), 0);
  for (const Piece& piece : plan_.pieces) ++num_pieces[piece.request];
  for (size_t i = 0; i < requests_.size(); ++i) requests_[i]->expect(num_pieces[i]);
}

const Extent* ReadGroup::take_extent() {
  if (next_extent_ == plan_.extents.size()) return nullptr;
  return &plan_.extents[next_extent_++];
}

bool ReadGroup::cancelled() const {
  return std::ranges::all_of(requests_, [](const auto& request) { return request->cancelled(); });
}

void ReadGroup::complete(const Extent& extent, const std::byte* data) {
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
  for (uint32_t i = extent.first_piece; i < extent.last_piece; ++i) {
    const Piece& piece = plan_.pieces[i];
    requests_[piece.request]->deliver(piece, data + (piece.file_offset - extent.offset));
  }
}

void ReadGroup::begin(const Extent& extent, const std::byte* data, std::vector<PieceCopy>& copies) {
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
  for (uint32_t i = extent.first_piece; i < extent.last_piece; ++i) {
    const Piece& piece = plan_.pieces[i];
    Request* const request = requests_[piece.request].get();
    std::byte* const target = request->begin(piece);
    if (target == nullptr) continue;
    copies.push_back({data + (piece.file_offset - extent.offset), target, piece.length, request});
  }
}

void ReadGroup::fail(const Extent& extent, const std::exception_ptr& error) {
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
  for (uint32_t i = extent.first_piece; i < extent.last_piece; ++i) {
    requests_[plan_.pieces[i].request]->fail(error);
  }
}

void ReadGroup::fail_rest(const char* why) {
  const auto error =
      std::make_exception_ptr(std::runtime_error(requests_.front()->description() + ": " + why));
  while (const Extent* extent = take_extent()) fail(*extent, error);
}

}  // namespace lsm
