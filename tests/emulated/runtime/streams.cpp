// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/runtime/streams.h"

#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/emulated/runtime/chance.h"
#include "tests/emulated/runtime/failures.h"
#include "tests/emulated/runtime/hooks.h"
#include "tests/emulated/runtime/waiting.h"

namespace emulated {

class Point {
 public:
  Token token;
  std::atomic<bool> is_passed{false};
  std::atomic<bool> is_found{false};  // by the host, which was told of it
};

namespace {

/// Told of every point that is passed.
Change& points_passed() {
  static Change* const change = new Change;
  return *change;
}

struct Work {
  std::function<void()> run;
  Token token;
  Work* next = nullptr;
};

/// Far longer than any work of the tests takes.
constexpr int kMaxWaitSecs = 300;

thread_local int chosen_device = 0;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
std::atomic<int> num_captures{0};  // of global mode, under way

}  // namespace
}  // namespace emulated

using namespace emulated;

/// Like Point never freed.
struct CUstream_st {
  int device;
  int priority;
  std::atomic<bool> is_destroyed{false};
  Lock lock;
  Change has_changed;
  Work* first = nullptr;
  Work** last = &first;
  bool has_ended = false;       // its thread takes no more work
  CUstream_st* next = nullptr;  // of all streams

  Work* take() {
    const std::lock_guard guard(lock);
    Work* const work = first;
    has_ended = work == nullptr && is_destroyed;
    if (work == nullptr) return nullptr;
    first = work->next;
    if (first == nullptr) last = &first;
    return work;
  }

  void run() {
    is_on_device = true;
    Chance chance;
    for (;;) {
      Work* work = nullptr;
      has_changed.wait_until([&] { return (work = take()) != nullptr || has_ended; });
      if (work == nullptr) return;
      delay(chance);
      work->token.acquire();
      work->run();
      delete work;
    }
  }

  /// Sometimes nothing, most often a moment, rarely as long as many kernels take.
  static void delay(Chance& chance) {
    const uint32_t kind = chance.below(64);
    if (kind >= 24) return;
    const timespec time{
        0, static_cast<long>(kind == 0 ? chance.below(1'500'000) : chance.below(60'000))};
    nanosleep(&time, nullptr);
  }
};

struct CUevent_st {
  int device;
  std::atomic<Point*> point{nullptr};
  std::atomic<bool> is_destroyed{false};
};

namespace emulated {
namespace {

std::atomic<CUstream_st*> all_streams{nullptr};

// The lower, the sooner, as CUDA has it. Streams run in any order here.
constexpr int kLowestPriority = 0;
constexpr int kHighestPriority = -5;

CUstream_st& make_stream(int device, int priority = kLowestPriority) {
  auto* const stream = new CUstream_st{.device = device, .priority = priority};
  stream->next = all_streams;
  while (!all_streams.compare_exchange_weak(stream->next, stream)) {
  }
  std::thread([stream] { stream->run(); }).detach();
  return *stream;
}

CUstream_st& default_stream(int device) {
  static CUstream_st* const streams[kNumDevices] = {&make_stream(0), &make_stream(1)};
  return *streams[device];
}

CUstream_st& live_stream(cudaStream_t stream, const char* call) {
  if (stream->is_destroyed) report("%s: the stream was destroyed", call);
  return *stream;
}

CUevent_st& live_event(cudaEvent_t event, const char* call) {
  if (event == nullptr || event->is_destroyed) report("%s: no such event", call);
  return *event;
}

}  // namespace

int current_device() {
  return chosen_device;
}

void check_current(int device, const char* call) {
  if (device == chosen_device) return;
  report("%s: it is device %d's, and the thread's current device is %d", call, device,
         chosen_device);
}

CUstream_st& stream_of(cudaStream_t stream, const char* call) {
  if (stream == nullptr || stream == cudaStreamLegacy) return default_stream(chosen_device);
  check_current(live_stream(stream, call).device, call);
  return *stream;
}

void check_captures(const char* call) {
  if (num_captures > 0 && capture_mode != cudaStreamCaptureModeRelaxed) {
    report("%s: spoils the capture of a stream, because the thread's mode is not relaxed", call);
  }
}

int device_of(const CUstream_st& stream) {
  return stream.device;
}

bool has_lowest_priority(const CUstream_st& stream) {
  return stream.priority == kLowestPriority;
}

void enqueue(CUstream_st& stream, std::function<void()> run) {
  auto* const work = new Work{.run = std::move(run)};
  work->token.release();
  {
    const std::lock_guard guard(stream.lock);
    // Only who waits for a whole device comes too late: all that was queued has run.
    if (stream.has_ended) {
      work->run();
      delete work;
      return;
    }
    *stream.last = work;
    stream.last = &work->next;
  }
  stream.has_changed.notify();
}

Point& mark(CUstream_st& stream) {
  auto* const point = new Point;
  enqueue(stream, [point] {
    point->token.release();
    point->is_passed = true;
    points_passed().notify();
  });
  return *point;
}

void wait_for(Point& point) {
  const time_t deadline = time(nullptr) + kMaxWaitSecs;
  points_passed().wait_until([&] { return point.is_passed || time(nullptr) > deadline; });
  if (!point.is_passed) report("work of a stream did not end within %d s", kMaxWaitSecs);
  point.token.acquire();
}

void wait_for_device(int device) {
  for (CUstream_st* stream = all_streams; stream != nullptr; stream = stream->next) {
    if (stream->device == device && !stream->is_destroyed) wait_for(mark(*stream));
  }
}

}  // namespace emulated

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kNumDevices) return cudaErrorInvalidDevice;
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  chosen_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = chosen_device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = kLowestPriority;
  *highest = kHighestPriority;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (flags != cudaStreamNonBlocking) report("a stream that waits for the default one: not played");
  if (priority > kLowestPriority || priority < kHighestPriority) {
    report("a stream of priority %d, which CUDA would take for another", priority);
  }
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  ++live_counts().streams;
  *stream = &make_stream(chosen_device, priority);
  return cudaSuccess;
}

/// Queued work still happens.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  CUstream_st& live = live_stream(stream, "cudaStreamDestroy");
  --live_counts().streams;
  enqueue(live, [&live] { live.is_destroyed = true; });
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}

/// Nothing is captured: only what others may do meanwhile is played.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  stream_of(stream, "cudaStreamBeginCapture");
  if (mode != cudaStreamCaptureModeGlobal) report("captures of other modes are not played");
  ++num_captures;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  stream_of(stream, "cudaStreamEndCapture");
  --num_captures;
  *graph = nullptr;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  check_captures("cudaStreamSynchronize");
  count_wait();
  wait_for(mark(stream_of(stream, "cudaStreamSynchronize")));
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Point* const point = live_event(event, "cudaStreamWaitEvent").point;
  CUstream_st& waiting = stream_of(stream, "cudaStreamWaitEvent");
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  if (point != nullptr) enqueue(waiting, [point] { wait_for(*point); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  ++live_counts().events;
  *event = new CUevent_st{.device = chosen_device};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  live_event(event, "cudaEventDestroy").is_destroyed = true;
  --live_counts().events;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CUevent_st& live = live_event(event, "cudaEventRecord");
  check_current(live.device, "cudaEventRecord");
  CUstream_st& recorded = stream_of(stream, "cudaEventRecord");
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  live.point = &mark(recorded);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  for (const cudaEvent_t event : {start, end}) {
    if (!live_event(event, "cudaEventElapsedTime").point.load()->is_passed)
      return cudaErrorNotReady;
  }
  *milliseconds = 1;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  check_captures("cudaEventQuery");
  Point* const point = live_event(event, "cudaEventQuery").point;
  if (point == nullptr) return cudaSuccess;
  if (!point->is_passed) return cudaErrorNotReady;
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  if (!point->is_found.exchange(true)) count_wait();
  point->token.acquire();
  return cudaSuccess;
}
