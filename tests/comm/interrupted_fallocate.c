// fallocate() as a signal interrupts it: every second call fails with EINTR, and allocates nothing.
// For LD_PRELOAD.
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

int fallocate(int descriptor, int mode, off_t offset, off_t length) {
  static int calls = 0;
  if (calls++ % 2 == 0) {
    errno = EINTR;
    return -1;
  }
  return (int)syscall(SYS_fallocate, descriptor, mode, offset, length);
}
