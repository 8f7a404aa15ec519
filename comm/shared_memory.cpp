// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "comm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "kernels/core/check.h"

namespace lsm::comm {
namespace {

constexpr size_t kPageBytes = 4096;
// Bytes that are allocated at a time: a signal may end a call, which then has allocated nothing.
constexpr size_t kPartBytes = 256 << 10;

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  const int error = errno;
  throw SystemError(error, file, concat(what, ": ", std::strerror(error)));
}

int create(size_t bytes) {
  const int descriptor = memfd_create("lsm-rows", MFD_CLOEXEC);
  if (descriptor < 0) fail("memfd", "shared memory cannot be created");
  // Allocates the memory now; otherwise a lack of memory would kill the first writer.
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(kPartBytes, bytes - done);
    if (fallocate(descriptor, 0, static_cast<off_t>(done), static_cast<off_t>(part)) == 0) {
      done += part;
      continue;
    }
    if (errno == EINTR) continue;
    const int error = errno;
    close(descriptor);
    errno = error;
    fail("memfd", concat("no room for ", bytes, " bytes of shared memory"));
  }
  return descriptor;
}

}  // namespace

Mapping::Mapping(int descriptor, size_t bytes) : bytes_(bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (memory == MAP_FAILED)
    fail("memfd", concat(bytes, " bytes of shared memory cannot be mapped"));
  data_ = static_cast<std::byte*>(memory);
}

Mapping::~Mapping() {
  munmap(data_, bytes_);
}

SharedBlock::SharedBlock(size_t bytes) {
  static std::atomic<int64_t> next_number{0};
  const size_t capacity = (std::max<size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
  descriptor_ = create(capacity);
  number_ = next_number++;
  try {
    mapping_ = std::make_unique<Mapping>(descriptor_, capacity);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

SharedBlock::~SharedBlock() {
  close(descriptor_);
}

void SharedBlock::discard() {
  // Only advice: where it fails the memory is freed when the last peer has unmapped it.
  [[maybe_unused]] const int result = ftruncate(descriptor_, 0);
}

Pool<SharedBlock>::Blocks SharedBlock::trim(Pool<SharedBlock>::Blocks& idle, size_t max_bytes) {
  std::sort(idle.begin(), idle.end(),
            [](const auto& a, const auto& b) { return a->capacity() > b->capacity(); });
  size_t bytes = 0;
  auto kept = idle.begin();
  while (kept != idle.end() && bytes + (*kept)->capacity() <= max_bytes) {
    bytes += (*kept++)->capacity();
  }
  for (auto block = kept; block != idle.end(); ++block) (*block)->discard();
  Pool<SharedBlock>::Blocks dropped(std::make_move_iterator(kept),
                                    std::make_move_iterator(idle.end()));
  idle.erase(kept, idle.end());
  return dropped;
}

PeerBlock::PeerBlock(int64_t process_id, int descriptor, size_t bytes) {
  const std::string path = concat("/proc/", process_id, "/fd/", descriptor);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail(path, "shared memory of another process cannot be opened");
  struct stat status{};
  const bool known = fstat(file, &status) == 0;
  try {
    check_argument(known && static_cast<size_t>(status.st_size) >= bytes, path, ": expected ",
                   bytes, " bytes of shared memory, got ", status.st_size);
    mapping_ = std::make_unique<Mapping>(file, bytes);
  } catch (...) {
    close(file);
    throw;
  }
  close(file);
}

}  // namespace lsm::comm
