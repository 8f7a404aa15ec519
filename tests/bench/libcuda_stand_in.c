// The few calls of the NVIDIA driver that say whether a GPU works, on host memory: for the tests of
// bench/lent_gpu.sh. STAND_IN_GPU names the GPU; STAND_IN_BROKEN: a call that fails.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int status_of(const char* call) {
  const char* broken = getenv("STAND_IN_BROKEN");
  return broken != NULL && strcmp(broken, call) == 0 ? 999 : 0;
}

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGetName(char* name, int length, int device) {
  (void)device;
  strncpy(name, getenv("STAND_IN_GPU"), (size_t)length - 1);
  return 0;
}
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuCtxCreate_v2(void** context, unsigned flags, int device) {
  (void)flags, (void)device;
  return *context = NULL, status_of("cuCtxCreate");
}
int cuMemAlloc_v2(uint64_t* memory, size_t bytes) {
  *memory = (uint64_t)(uintptr_t)malloc(bytes);
  return status_of("cuMemAlloc");
}
int cuMemsetD32_v2(uint64_t memory, unsigned value, size_t count) {
  for (size_t i = 0; i < count; ++i) ((uint32_t*)(uintptr_t)memory)[i] = value;
  return 0;
}
int cuCtxSynchronize(void) { return status_of("cuCtxSynchronize"); }
int cuMemcpyDtoH_v2(void* target, uint64_t source, size_t bytes) {
  memcpy(target, (void*)(uintptr_t)source, bytes);
  return 0;
}
