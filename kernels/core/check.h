// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Errors that callers see: ArgumentError becomes ValueError in Python, SystemError becomes OSError
// (with errno and file name), TimeoutError becomes TimeoutError, std::runtime_error RuntimeError.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace lsm {

/// Bad input. The message has the expectation and the value.
struct ArgumentError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// A system call or a read failed. The message has errno, the file and the attempted operation.
struct SystemError : std::runtime_error {
  SystemError(int errno_value, std::string file_name, const std::string& what)
      : std::runtime_error(what), error_number(errno_value), file(std::move(file_name)) {}
  int error_number;
  std::string file;
};

/// A wait timed out. The message names the awaited event and the seconds.
struct TimeoutError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
std::string concat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// Throws ArgumentError with the concatenation of `message` unless `condition` holds.
template <class... Args>
void check_argument(bool condition, const Args&... message) {
  if (!condition) throw ArgumentError(concat(message...));
}

/// The body of stand-ins for GPU code that was not built.
[[noreturn]] inline void throw_without_cuda(const char* what) {
  throw std::runtime_error(concat(what, " needs CUDA, and this was built without; install nvcc, ",
                                  "build again with LSM_CUDA=ON, and see `lsm doctor`"));
}

}  // namespace lsm
