#pragma once

#include "kernels/op/call.h"

// The call of the products in kernels/linear/linear.h.
namespace clover::kernels {

/// The epilogue of linear_rope_and_store: heads are normed and rotated, and stored here.
struct RopeCall {
  const float *cos, *sin;  // [rows, head_size / 2]
  const int64_t* slots;    // [rows] of the cache
  float* q;                // [rows, query_heads, head_size]
  void *k, *v;             // [pages, kv_heads, page_size, head_size] of dtype `cache`
  int64_t query_heads, kv_heads, head_size, page_size;
  Element cache;
  const float *query_norm, *key_norm;  // [head_size] or null
  float norm_eps;
};

/// What is done with a product's sums: linear, linear_silu_mul, linear_rope_and_store, linear_arg_max.
enum class Epilogue { store, silu_mul, rope_and_store, arg_max };

struct LinearCall {
  const void* x;       // [rows, inputs] of dtype `element`; fp32 if `norm` is given
  const void* panels;  // the weight of dtype `element`, as PackedWeight::panels() holds it on this device
  const float* bias;   // [outputs] or null
  float* y;            // of store: [rows, outputs]
  int64_t rows, outputs, inputs;
  Element element;
  bool accumulate;
  Epilogue epilogue;
  void* product;  // of silu_mul: [rows, outputs / 2] of dtype `element`
  RopeCall rope;  // of rope_and_store
  // Of arg_max on a GPU: [rows, panels] the largest key (vocabulary/ranking.cuh) of each panel.
  uint64_t* best_keys;
  const float* norm;  // [inputs] weight of the RMSNorm of the rows, or null
  float norm_eps;
  int64_t* indices;  // of arg_max: [rows]
};
void run_on_cpu(const LinearCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const LinearCall& call, const GpuContext& context);

}  // namespace clover::kernels
