// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/io/nvme/queue/queue_pair.h"
#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

struct ControllerInfo {
  std::string serial;
  std::string model;
  std::string firmware;
  uint32_t version = 0;             // in the register's format: 0x00010400 is 1.4
  uint64_t max_transfer_bytes = 0;  // MDTS, at most the limit of a command
  uint32_t max_queue_entries = 0;
  uint32_t num_namespaces = 0;  // the highest namespace identifier
};

struct NamespaceInfo {
  uint32_t id = 0;
  uint64_t num_blocks = 0;
  uint32_t block_bytes = 0;

  uint64_t bytes() const { return num_blocks * block_bytes; }
};

struct QueueOptions {
  uint32_t depth = 256;              // entries; rounded up to a power of two, at least 2
  uint32_t completion_depth = 4096;  // the same; at least `depth`, more saves head doorbells
};

class AdminQueue;
class Controller;

/// An I/O queue pair of a controller, with its memory. The destructor deletes the queues on the
/// controller, after which none of their commands writes to memory. It never throws.
class IoQueue {
 public:
  ~IoQueue();
  IoQueue(const IoQueue&) = delete;
  IoQueue& operator=(const IoQueue&) = delete;

  const QueuePair& pair() const { return pair_; }
  const QueueState& state() const { return *pair_.state; }

 private:
  friend class Controller;
  IoQueue(Controller& controller, uint16_t id, const QueueOptions& options);

  Controller& controller_;
  DmaMemory submission_;
  DmaMemory completion_;
  std::unique_ptr<QueueState> state_;
  std::vector<uint32_t> published_;
  QueuePair pair_{};
};

/// Brings up a controller over a transport and shuts it down again. Thread-safe. A wait that takes
/// too long throws TimeoutError, which names the event; a command that fails throws
/// std::runtime_error with the status in words.
class Controller {
 public:
  /// Resets, enables and identifies the controller. Throws std::runtime_error if the transport maps
  /// no NVMe controller, or one that reports a fatal state or lacks a needed feature.
  explicit Controller(std::unique_ptr<Transport> transport, double timeout_secs = 10.0);
  /// shut_down(), without throwing.
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  const std::string& name() const { return name_; }
  const ControllerInfo& info() const { return info_; }
  Transport& transport() { return *transport_; }

  /// Throws ArgumentError if the namespace does not exist, or if its format is not supported:
  /// blocks larger than a page, or with interleaved metadata.
  NamespaceInfo identify_namespace(uint32_t id);

  /// Requests `wanted` pairs of I/O queues and returns the number granted. Precondition: the first
  /// call, before any queue is created.
  uint32_t set_num_queues(uint32_t wanted);

  /// Creates an I/O queue pair. `id`: 1 to the number of queues, not in use. Depths are lowered to
  /// the controller's limit.
  std::unique_ptr<IoQueue> create_queue(uint16_t id, const QueueOptions& options);

  /// Normal shut-down (CC.SHN), which leaves the drive in the state that its driver expects.
  /// Precondition: all queues are destroyed. Does nothing the second time.
  void shut_down();

 private:
  friend class IoQueue;
  uint32_t read_register(uint32_t offset) const;
  void write_register(uint32_t offset, uint32_t value);
  uint64_t read_register64(uint32_t offset) const;
  void write_register64(uint32_t offset, uint64_t value);
  /// Waits until (CSTS & mask) == value.
  void await_status(uint32_t mask, uint32_t value, const char* what);
  void check_capabilities();
  void reset();
  void enable();
  void identify();
  /// Stops the controller as a last resort, so that it writes to no memory of ours.
  void disable_quietly() noexcept;

  std::unique_ptr<Transport> transport_;
  const std::string name_;
  const double timeout_secs_;
  Capabilities capabilities_;
  ControllerInfo info_;
  std::mutex admin_mutex_;
  std::unique_ptr<AdminQueue> admin_;
  bool disabled_ = false;
  bool shut_down_ = false;
};

}  // namespace lsm::nvme
