#pragma once

#include "kernels/op/call.h"

// The calls of kernels/rows/activation.h.
namespace clover::kernels {

struct AddSiluCall {
  float* z;        // [count]
  const float* a;  // [count]
  int64_t count;
};
void run_on_cpu(const AddSiluCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const AddSiluCall& call, const GpuContext& context);

struct GatedCall {
  /// [rows, width], or [.., width] where rows are chosen.  A GPU's only: the CPU adds to `out`.
  const float* s;
  const int64_t* chosen;   // [rows] the row of s for each row of out; null: its own.  A GPU's only
  const float* q;          // [rows, width]
  const void* kv;          // [rows, 2 width] fp32; with `kv_rows` [.., 2 width] of `element`
  const int64_t* kv_rows;  // [rows] or null.  A GPU's only
  int64_t rows, width, groups;
  float eps;
  bool silu;
  float* out;     // [rows, width]
  void* rounded;  // [rows, width] of `element`; the CPU leaves it alone
  Element element;
};
void run_on_cpu(const GatedCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const GatedCall& call, const GpuContext& context);

namespace cpu {

struct ActivationLoops {
  float (*exp)(float x);
  /// Elements [begin, end).
  void (*add_silu)(float* z, const float* a, int64_t begin, int64_t end);
  /// One row: s += silu(gate * v), each [width].
  void (*add_gated)(float* s, const float* q, const float* k, const float* v, int64_t width, int64_t groups,
                    float eps, bool silu);
};

}  // namespace cpu
}  // namespace clover::kernels
