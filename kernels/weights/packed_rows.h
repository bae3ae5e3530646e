#pragma once

#include "kernels/op/call.h"

namespace clover::kernels {

/// Rows of a PackedWeight as they are: out[r] = W[ids[r]], which the CPU gathers in PackedWeight::rows.
struct GatherCall {
  const void* panels;  // 16-bit inputs paired
  const int64_t* ids;  // [rows]
  int64_t rows, inputs;
  Element element;
  void* out;  // [rows, inputs]
};
CLOVER_GPU_KERNEL void run_on_gpu(const GatherCall& call, const GpuContext& context);

}  // namespace clover::kernels
