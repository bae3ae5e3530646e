#pragma once

#include "kernels/op/call.h"

namespace clover::kernels {

/// The GPU part of PackedWeight::rows: out[r, :] = W[ids[r], :].  The CPU part is in packed_weight.cc.
struct GatherCall {
  const void* panels;  // PackedWeight::panels, 16-bit inputs paired
  const int64_t* ids;  // [rows]
  int64_t rows, inputs;
  Element element;  // of W and out
  void* out;        // [rows, inputs]
};
CLOVER_GPU_KERNEL void run_on_gpu(const GatherCall& call, const GpuContext& context);

}  // namespace clover::kernels
