#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/op/call.h"

namespace clover::kernels {

/// Runs a call whose tensors have been checked where `tensor`, one of them, lies: on the CPU, or queued on
/// the GPU's current stream.
template <class Call>
void run(const char* op, const at::Tensor& tensor, const Call& call) {
  if (!on_gpu(op, tensor)) return run_on_cpu(call);
  run_on_gpu(call, GpuContext(op, tensor));
}

}  // namespace clover::kernels
