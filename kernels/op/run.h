#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/op/call.h"

namespace clover::kernels {

/// Runs `call` on the device of `tensor`, one of its tensors: at once on the CPU, or queued on the GPU's
/// current stream.  The tensors have been checked before.
template <class Call>
void run(const char* op, const at::Tensor& tensor, const Call& call) {
  if (!on_gpu(op, tensor)) return run_on_cpu(call);
  run_on_gpu(call, GpuContext(op, tensor));
}

}  // namespace clover::kernels
