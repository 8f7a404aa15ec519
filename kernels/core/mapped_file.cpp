// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "kernels/core/check.h"

namespace lsm {

/// One mapping. Entries are reused and never freed, so that a signal handler can walk the list at
/// any time.
struct MappedFile::Entry {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // 0: the entry is free
  std::atomic<bool> failed{false};
  std::atomic<const MappedFile*> file{nullptr};
  Entry* next = nullptr;
};

namespace {

using Entry = MappedFile::Entry;

std::atomic<Entry*> entries{nullptr};
std::mutex entries_mutex;  // held where the list or the signal's action changes, never by a handler
struct sigaction previous_action{};
std::atomic<int> num_foreign{0};

Entry* find_entry(uintptr_t address) {
  for (Entry* entry = entries.load(std::memory_order_acquire); entry; entry = entry->next) {
    const uintptr_t begin = entry->begin.load();
    // Reads again: the entry may belong to another mapping by now.
    if (begin <= address && address < entry->end.load() && begin == entry->begin.load()) {
      return entry;
    }
  }
  return nullptr;
}

/// Handles a fault outside all mappings as if this handler did not exist.
void pass_on(const siginfo_t* info) {
  // The previous handler may call this one; the second time the default action applies.
  if (num_foreign.fetch_add(1) == 0) {
    sigaction(SIGBUS, &previous_action, nullptr);
  } else {
    signal(SIGBUS, SIG_DFL);
  }
  // Where memory is at fault, the access is repeated on return and faults again.
  if (info->si_code <= 0) raise(SIGBUS);
}

void on_bus_error(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  Entry* entry = info->si_code > 0 ? find_entry(address) : nullptr;
  if (entry == nullptr) {
    pass_on(info);
    errno = saved_errno;
    return;
  }
  // Sets the flag before the zeros, so that a reader of zeros sees the flag.
  entry->failed.store(true);
  const uintptr_t begin = entry->begin.load();
  void* zeros =
      mmap(reinterpret_cast<void*>(begin), entry->end.load() - begin, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (zeros == MAP_FAILED) pass_on(info);
  errno = saved_errno;
}

void install_handler() {
  struct sigaction current{};
  sigaction(SIGBUS, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_bus_error) return;
  previous_action = current;
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

Entry* add_entry(const MappedFile& file) {
  std::lock_guard lock(entries_mutex);
  install_handler();
  Entry* entry = entries.load();
  while (entry != nullptr && entry->end.load() != 0) entry = entry->next;
  const bool is_new = entry == nullptr;
  if (is_new) entry = new Entry;
  const auto begin = reinterpret_cast<uintptr_t>(file.data());
  entry->failed.store(false);
  entry->file.store(&file);
  entry->begin.store(begin);
  entry->end.store(begin + file.size());
  if (is_new) {
    entry->next = entries.load();
    entries.store(entry, std::memory_order_release);
  }
  return entry;
}

}  // namespace

MappedFile::MappedFile(std::string path, int64_t bytes) : path_(std::move(path)) {
  const auto fail = [&](const char* call) {
    const int error = errno;
    if (descriptor_ >= 0) close(descriptor_);
    throw SystemError(error, path_, concat(call, ": ", std::strerror(error)));
  };
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail("cannot open");
  struct stat status{};
  if (fstat(descriptor_, &status) != 0) fail("fstat");
  size_ = static_cast<size_t>(bytes < 0 ? status.st_size : bytes);
  if (size_ == 0) return;
  void* memory =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor_, 0);
  if (memory == MAP_FAILED) fail("mmap");
  data_ = static_cast<std::byte*>(memory);
  entry_ = add_entry(*this);
}

MappedFile::~MappedFile() {
  if (entry_ != nullptr) {
    // While the entry names it, the memory must be there: otherwise the handler could put zeros
    // over another mapping.
    std::lock_guard lock(entries_mutex);
    entry_->begin.store(UINTPTR_MAX);
    entry_->file.store(nullptr);
    munmap(data_, size_);
    entry_->end.store(0);
  }
  close(descriptor_);
}

void MappedFile::check() const {
  struct stat status{};
  const bool is_short = fstat(descriptor_, &status) != 0 ||
                        static_cast<size_t>(std::max<off_t>(0, status.st_size)) < size_;
  const bool has_failed = entry_ != nullptr && entry_->failed.load();
  if (!is_short && !has_failed) return;
  const std::string reason = is_short ? concat("truncated while in use: expected at least ", size_,
                                               " bytes, got ", status.st_size)
                                      : "a page of it could not be read (the kernel log says why)";
  throw SystemError(EIO, path_, concat(reason, "; restore the file or convert the data again"));
}

void check_mapped(const void* address) {
  const Entry* entry = find_entry(reinterpret_cast<uintptr_t>(address));
  if (entry == nullptr) return;
  if (const MappedFile* file = entry->file.load()) file->check();
}

}  // namespace lsm
