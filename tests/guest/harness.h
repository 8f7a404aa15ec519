// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The parts of the first process of a test guest: file systems, checks with one line of result
// each, and the end of the machine.
#pragma once

#include <fcntl.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/core/check.h"

namespace lsm::guest {

using Bytes = std::vector<char>;

inline void mount_file_systems() {
  for (const auto& [kind, where] :
       {std::pair{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}}) {
    mkdir(where, 0755);
    mount(kind, where, kind, 0, nullptr);
  }
}

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// The message of the exception that `call` throws, which must hold `part`.
inline std::string expect_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
  } catch (const std::exception& error) {
    const std::string message = error.what();
    expect(message.find(part) != std::string::npos,
           "expected an error with '" + part + "', got: " + message);
    return message;
  }
  throw std::runtime_error("expected an error with '" + part + "', got none");
}

inline Bytes file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  expect(file.good(), "cannot open " + path);
  Bytes bytes(static_cast<size_t>(file.tellg()));
  file.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  expect(file.good(), "cannot read " + path);
  return bytes;
}

inline void write_file(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY);
  const bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (file >= 0) close(file);
  expect(written, "cannot write " + text + " to " + path + ": " + std::strerror(error));
}

inline void load_module(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool loaded = file >= 0 && syscall(SYS_finit_module, file, "", 0) == 0;
  const int error = errno;
  if (file >= 0) close(file);
  expect(loaded, "cannot load " + path + ": " + std::strerror(error));
}

inline void unload_module(const std::string& name) {
  expect(syscall(SYS_delete_module, name.c_str(), O_NONBLOCK) == 0,
         "cannot unload " + name + ": " + std::strerror(errno));
}

inline std::string kernel_log() {
  constexpr int kReadAll = 3;
  std::string text(1 << 18, '\0');
  const int length = klogctl(kReadAll, text.data(), static_cast<int>(text.size()));
  text.resize(static_cast<size_t>(std::max(length, 0)));
  return text;
}

/// Waits until `holds`.
inline void await(const std::function<bool()>& holds, const std::string& what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    expect(std::chrono::steady_clock::now() < end, "timed out after 60 s waiting for " + what);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Runs named checks; prints "check NAME ok" or "check NAME failed: why" for each.
class Checks {
 public:
  void run(const std::string& name, const std::function<void()>& check) {
    const auto start = std::chrono::steady_clock::now();
    try {
      check();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      std::printf("check %s ok (%.2f s)\n", name.c_str(), took.count());
    } catch (const std::exception& error) {
      std::printf("check %s failed: %s\n", name.c_str(), error.what());
    }
    std::fflush(stdout);
  }

  void run_if(bool possible, const std::string& why_not, const std::string& name,
              const std::function<void()>& check) {
    if (possible) return run(name, check);
    std::printf("check %s skipped: %s\n", name.c_str(), why_not.c_str());
  }
};

[[noreturn]] inline void power_off() {
  std::printf("guest done\n");
  std::fflush(stdout);
  tcdrain(STDOUT_FILENO);
  reboot(RB_POWER_OFF);
  std::abort();
}

}  // namespace lsm::guest
