#pragma once

#include <ATen/Device.h>

#include <functional>
#include <string>

namespace clover::infer {

/// Runs `work` under LibTorch's profiler (Kineto) and writes a Chrome trace to `file`, for Perfetto or
/// chrome://tracing.  On a GPU the trace has all kernels and copies; on the CPU it has LibTorch's operators
/// but not our own kernels.  Profiling slows the work down a little.  An existing file is replaced.
/// std::runtime_error when the file cannot be written.
void trace(at::Device device, const std::string& file, const std::function<void()>& work);

}  // namespace clover::infer
