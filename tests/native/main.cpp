// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Runs the native tests, and those on the emulated GPU, by doctest: all of them, or those that
// --test-case names. A sanitizer ends the process with an error at the first report.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS  // they are the sanitizers'
#include <doctest/doctest.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
/// An exception that one thread stores and another rethrows goes away with the last reference. The
/// count of these is in libstdc++, which the sanitizer does not see into: it cannot know that the
/// last one to let go comes after all who read the message. Reports with this function in a stack
/// are about that memory and no other.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif

int main(int argc, char** argv) {
  constexpr unsigned kMaxSecs = 900;  // of the whole run; SIGALRM then ends it
  alarm(kMaxSecs);
  doctest::Context context;
  context.setOption("duration", true);
  context.applyCommandLine(argc, argv);
  return context.run();
}
