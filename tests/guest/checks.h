// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Checks that hold for QEMU's controllers over any transport.
//
// Controller A: namespace 1 with 512 B blocks (image a1), namespace 2 with 4 KiB blocks (a2),
// namespace 3 with 8 bytes of metadata for each of its blocks.
// Controller B: namespace 1 with 512 B blocks (b1).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/io/engines/open_storage.h"
#include "kernels/io/nvme/engine/namespaces.h"
#include "tests/guest/harness.h"
#include "tests/native/nvme_checks.h"

namespace lsm::guest {

/// How the namespaces of the controllers are named in storage.devices.
struct Names {
  std::string transport;
  std::string a;
  std::string b;
};

/// A controller with its namespaces and their images.
struct Drive {
  std::unique_ptr<nvme::Controller> controller;
  std::vector<Bytes> images;
  std::vector<nvme::checks::KnownNamespace> spaces;
};

inline Drive open_drive(std::unique_ptr<nvme::Transport> transport,
                        const std::vector<std::string>& images) {
  Drive drive;
  drive.controller = std::make_unique<nvme::Controller>(std::move(transport));
  for (const std::string& name : images) drive.images.push_back(file_bytes("/images/" + name));
  for (const Bytes& image : drive.images) {
    const auto id = static_cast<uint32_t>(drive.spaces.size() + 1);
    drive.spaces.push_back(
        {drive.controller->identify_namespace(id), std::as_bytes(std::span(image))});
  }
  return drive;
}

inline void check_identity(const Drive& drive) {
  const nvme::ControllerInfo& info = drive.controller->info();
  expect(info.serial == "lsm-a", "serial: expected lsm-a, got " + info.serial);
  expect(info.model == "QEMU NVMe Ctrl", "model: got " + info.model);
  expect(info.max_transfer_bytes == 4 << 20, concat("MDTS: got ", info.max_transfer_bytes));
  expect(drive.spaces[0].info.block_bytes == 512, "namespace 1: expected blocks of 512 bytes");
  expect(drive.spaces[1].info.block_bytes == 4096, "namespace 2: expected blocks of 4096 bytes");
  for (const nvme::checks::KnownNamespace& space : drive.spaces) {
    expect(space.info.bytes() == space.image.size(), "a namespace is not of its image's size");
  }
}

/// Data that begins anywhere in a page, as long as its PRP list takes one page or two.
inline void check_offsets(Drive& drive) {
  const nvme::checks::KnownNamespace& space = drive.spaces[0];
  nvme::Transport& transport = drive.controller->transport();
  constexpr uint32_t kMostBytes = 3 << 20;
  const nvme::DmaMemory data =
      transport.allocate(kMostBytes + nvme::kPageBytes, nvme::DmaShape::kPages);
  const nvme::DmaMemory lists = transport.allocate(2 * nvme::kPageBytes, nvme::DmaShape::kPages);
  const auto queue = drive.controller->create_queue(1, {2, 2});
  for (const uint32_t bytes : {512u, 4096u, 8192u, 65'536u, 2u << 20, kMostBytes}) {
    for (const uint32_t offset : {4u, 512u, 4092u}) {
      const nvme::BlockRange blocks{1, bytes / 512, 1};
      const nvme::DataPointer pointer = nvme::make_data_pointer(
          offset, bytes, [&](uint32_t page) { return data.pages[page]; },
          reinterpret_cast<uint64_t*>(lists.data),
          [&](uint32_t page) { return lists.pages[page]; });
      nvme::submit_batch(queue->pair(), 1,
                         [&](uint32_t) { return nvme::ReadCommand::make(0, blocks, pointer); });
      await(
          [&] {
            return nvme::take_completions(queue->pair(), 1, [](const nvme::Completion& entry) {
                     expect(entry.status() == 0, nvme::describe_status(entry.status()));
                   }) == 1;
          },
          "a completion");
      expect(std::memcmp(data.data + offset, space.image.data() + 512, bytes) == 0,
             concat(bytes, " bytes at offset ", offset, " are wrong"));
    }
  }
}

/// Rows of 1,000 bytes that the engine reads, dealt over `devices` in stripes of 4 KiB.
inline void check_engine(const std::string& transport, const std::vector<std::string>& devices,
                         const std::vector<Bytes>& images) {
  RowLayout layout{0, 1000, 4096, static_cast<int64_t>(devices.size())};
  layout.num_rows = static_cast<int64_t>(images[0].size() * devices.size()) / layout.row_bytes;
  nvme::NvmeOptions options;
  options.transport.transport = transport;
  const auto storage = open_storage("nvme", devices, layout, {.num_threads = 2}, options);
  std::vector<int64_t> rows(2000);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<int64_t>(i * i * 977) % layout.num_rows;
  }
  std::vector<std::byte> output(rows.size() * static_cast<size_t>(layout.row_bytes));
  const RowRead read{rows, {}, output};
  storage->submit(std::span(&read, 1))[0]->wait(20.0);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::byte* row = output.data() + i * static_cast<size_t>(layout.row_bytes);
    layout.for_each_run(rows[i], [&](int64_t part, int64_t offset, int64_t length, int64_t done) {
      const char* expected = images[static_cast<size_t>(part)].data() + offset;
      expect(std::memcmp(row + done, expected, static_cast<size_t>(length)) == 0,
             concat("row ", rows[i], " is wrong"));
    });
  }
}

/// The label that tells one namespace from another is read back as it was written.
inline void check_last_page(const Names& names) {
  nvme::TransportOptions options;
  options.transport = names.transport;
  for (const auto& [name, image] :
       {std::pair{names.a + "@2", "/images/a2"}, {names.b, "/images/b1"}}) {
    const std::vector<std::byte> page = nvme::read_last_page(options, name);
    const Bytes bytes = file_bytes(image);
    expect(std::memcmp(page.data(), bytes.data() + bytes.size() - page.size(), page.size()) == 0,
           "the last page of " + name + " is wrong");
  }
  expect_error([&] { nvme::read_last_page(options, names.b + "@9"); }, "namespace 9 is not active");
}

/// The queue code, on controller A.
inline void run_queue_checks(Checks& checks, Drive& drive) {
  using nvme::checks::Shape;
  constexpr size_t kReads = 1000;
  nvme::Controller& controller = *drive.controller;
  checks.run("identity", [&] { check_identity(drive); });
  checks.run("metadata", [&] {
    expect_error([&] { controller.identify_namespace(3); },
                 "namespace 3 has 8 bytes of metadata per block; format it with none");
  });
  checks.run("num_queues",
             [&] { expect(controller.set_num_queues(64) == 16, "expected 16 of 64 queues"); });
  checks.run("transfers", [&] {
    for (const auto& space : drive.spaces) nvme::checks::check_transfer_lengths(controller, space);
  });
  checks.run("offsets", [&] { check_offsets(drive); });
  checks.run("depths", [&] {
    for (const uint32_t depth : {1u, 2u, 4u, 64u, 1024u}) {
      for (const Shape shape : {Shape::kContiguous, Shape::kSparse}) {
        nvme::checks::check_random_reads(controller, drive.spaces, {depth, depth}, shape, kReads);
      }
    }
  });
  checks.run("queues", [&] {
    for (const uint32_t count : {1u, 2u, 3u, 8u, 16u}) {
      nvme::checks::check_many_queues(controller, drive.spaces, count, kReads / count);
    }
  });
  checks.run("out_of_range", [&] {
    for (const auto& space : drive.spaces) nvme::checks::check_out_of_range(controller, space);
  });
}

/// The engine over the queue code, on both controllers.
inline void run_engine_checks(Checks& checks, const Names& names) {
  const Bytes a1 = file_bytes("/images/a1");
  const Bytes a2 = file_bytes("/images/a2");
  const Bytes b1 = file_bytes("/images/b1");
  checks.run("engine_one_namespace", [&] { check_engine(names.transport, {names.b}, {b1}); });
  checks.run("engine_two_namespaces",
             [&] { check_engine(names.transport, {names.a, names.a + "@2"}, {a1, a2}); });
  checks.run("engine_two_drives", [&] {
    check_engine(names.transport, {names.a + "@2", names.b, names.a}, {a2, b1, a1});
  });
  checks.run("engine_too_small", [&] {
    const RowLayout layout{8500, 1000, 4096, 1};
    nvme::NvmeOptions options;
    options.transport.transport = names.transport;
    expect_error([&] { open_storage("nvme", {names.b}, layout, {}, options); }, "too small");
  });
  checks.run("engine_named_twice", [&] {
    expect_error([&] { check_engine(names.transport, {names.a, names.a + "@1"}, {a1, a1}); },
                 "is named twice");
  });
  checks.run("last_page", [&] { check_last_page(names); });
}

}  // namespace lsm::guest
