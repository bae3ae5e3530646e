#pragma once

#include "kernels/op/call.h"

// The calls of kernels/rows/activation.h.
namespace clover::kernels {

// z[i] += silu(a[i]).
struct AddSiluCall {
  float* z;        // [count]
  const float* a;  // [count]
  int64_t count;
};
void run_on_cpu(const AddSiluCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const AddSiluCall& call, const GpuContext& context);

// add_gated, with row s_rows[r] of s and row kv_rows[r] of kv for row r.  The CPU ignores s, s_rows, kv_rows,
// rounded and element: its `out` holds the rows of s before the call, and its kv is gathered.
struct GatedCall {
  const float* s;          // [rows, width]; with s_rows [any, width]
  const int64_t* s_rows;   // [rows] or null: row r itself
  const float* q;          // [rows, width]
  const void* kv;          // fp32 [rows, 2 width], keys then values; with kv_rows [any, 2 width] of `element`
  const int64_t* kv_rows;  // [rows] or null: row r itself
  int64_t rows, width, groups;
  float eps;
  bool silu;
  float* out;     // [rows, width]
  void* rounded;  // [rows, width] of `element`
  Element element;
};
void run_on_cpu(const GatedCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const GatedCall& call, const GpuContext& context);

namespace cpu {

struct ActivationLoops {
  float (*exp)(float x);
  /// z[i] += silu(a[i]) for i of [begin, end).
  void (*add_silu)(float* z, const float* a, int64_t begin, int64_t end);
  /// add_gated for one row, in place: s += silu(gate * v), or gate * v without silu.  s, q, k and v: [width].
  void (*add_gated)(float* s, const float* q, const float* k, const float* v, int64_t width, int64_t groups,
                    float eps, bool silu);
};

}  // namespace cpu
}  // namespace clover::kernels
