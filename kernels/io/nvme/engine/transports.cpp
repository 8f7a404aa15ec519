// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/transports.h"

#include "kernels/core/check.h"
#include "kernels/io/feature_files.h"
#include "kernels/io/nvme/emulated/emulated_transport.h"
#include "kernels/io/nvme/engine/gpu_landing.h"
#include "kernels/io/nvme/engine/namespaces.h"

namespace lsm::nvme {
namespace {

OpenTransports open_emulated(const EmulationOptions& options, const std::vector<std::string>& paths,
                             const RowLayout& layout) {
  check_argument(options.block_bytes == 512 || options.block_bytes == 4096,
                 "emulated block_bytes: expected 512 or 4096, got ", options.block_bytes);
  check_argument(options.num_controllers >= 1 && options.num_controllers <= paths.size(),
                 "emulated num_controllers: expected 1 to ", paths.size(), ", one per file, got ",
                 options.num_controllers);
  const FeatureFiles check(paths, layout, DirectMode::kOff);  // missing or truncated files
  std::vector<std::vector<EmulatedNamespace>> namespaces(options.num_controllers);
  OpenTransports result;
  for (size_t i = 0; i < paths.size(); ++i) {
    const size_t controller = i % options.num_controllers;
    std::shared_ptr<BlockSource> blocks =
        std::make_shared<FileBlocks>(paths[i], options.most_bytes, options.writable);
    if (options.gpu >= 0) blocks = make_gpu_blocks(std::move(blocks), options.gpu);
    namespaces[controller].push_back({std::move(blocks), options.block_bytes});
    result.namespaces.push_back({controller, static_cast<uint32_t>(namespaces[controller].size())});
  }
  for (size_t i = 0; i < options.num_controllers; ++i) {
    result.transports.push_back(std::make_unique<EmulatedTransport>(
        concat("emulated controller of ", paths[i]), options.controller, std::move(namespaces[i])));
  }
  return result;
}

}  // namespace

OpenTransports open_transports(const TransportOptions& options,
                               const std::vector<std::string>& paths, const RowLayout& layout) {
  check_argument(static_cast<int64_t>(paths.size()) == layout.num_files, "paths: expected ",
                 layout.num_files, ", one per part of the rows, got ", paths.size());
  if (options.transport == "emulated") return open_emulated(options.emulated, paths, layout);
  if (options.transport == "sysfs") return open_sysfs(paths);
  if (options.transport == "libnvm") return open_libnvm(paths);
  throw ArgumentError(concat("storage.transport: expected emulated, sysfs or libnvm, got '",
                             options.transport, "'"));
}

}  // namespace lsm::nvme
