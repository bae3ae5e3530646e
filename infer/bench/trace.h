#pragma once

#include <ATen/Device.h>

#include <functional>
#include <string>

namespace clover::infer {

/// Does `work` under LibTorch's profiler (Kineto) and writes what ran when to `file`, as a Chrome trace that
/// Perfetto and chrome://tracing show: on a GPU its kernels and copies, on the CPU LibTorch's operators
/// (which our kernels are not).  It makes work a little slower.  InputError when the file cannot be written;
/// what was there is replaced.
void trace(at::Device device, const std::string& file, const std::function<void()>& work);

}  // namespace clover::infer
