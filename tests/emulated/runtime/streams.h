// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Streams: a thread each, which does one thing after the other, after random delays.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace emulated {

/// A point in a stream that the host or another stream waits for. Never freed, because the last to
/// look at it could be any thread.
class Point;

/// The device that this thread chose, 0 at first.
int current_device();
/// Ends the process, naming `call`, unless `device` is the current one.
void check_current(int device, const char* call);

/// The stream behind a handle: the current device's default stream for 0 and cudaStreamLegacy.
/// Ends the process if it is none, or one of another device than the current one.
CUstream_st& stream_of(cudaStream_t stream, const char* call);
int device_of(const CUstream_st& stream);
bool has_lowest_priority(const CUstream_st& stream);

/// Ends the process, naming `call`, if it spoils a capture: one of global mode is under way, and
/// this thread's mode is not relaxed.
void check_captures(const char* call);

/// Does `work` in the stream's thread when everything before it is done.
void enqueue(CUstream_st& stream, std::function<void()> work);
Point& mark(CUstream_st& stream);
/// Blocks the calling thread, which then comes after the point.
void wait_for(Point& point);
/// Waits for all streams of the device.
void wait_for_device(int device);

}  // namespace emulated
