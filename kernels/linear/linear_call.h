#pragma once

#include "kernels/op/call.h"

// The call of the products in kernels/linear/linear.h.
namespace clover::kernels {

/// What is done to rows of queries, keys and values, and where they go.
struct RopeCall {
  const float *cos, *sin;  // [rows, head_size / 2]
  const int64_t* slots;    // [rows] of the cache
  float* q;                // [rows, query_heads, head_size]
  void *k, *v;             // [pages, kv_heads, page_size, head_size] of `cache`
  int64_t query_heads, kv_heads, head_size, page_size;
  Element cache;
  const float *query_norm, *key_norm;  // [head_size] or null
  float norm_eps;
};

/// What is done with a product's sums.
enum class Epilogue { store, silu_mul, rope_and_store, best };

struct LinearCall {
  const void* x;       // [rows, inputs] of `element`; fp32 where they are normed first
  const void* panels;  // PackedWeight's layout on the device of the call
  const float* bias;   // [outputs] or null
  float* y;            // [rows, outputs]
  int64_t rows, outputs, inputs;
  Element element;
  bool accumulate;
  Epilogue epilogue;
  void* product;  // of silu_mul: [rows, outputs / 2] of `element`
  RopeCall rope;
  uint64_t* best;     // of best, on a GPU: [rows, panels], the largest key of each (vocabulary/ranking.cuh)
  const float* norm;  // [inputs], what rows are normed with, or null
  float norm_eps;
  int64_t* indices;  // of best: [rows]
};
void run_on_cpu(const LinearCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const LinearCall& call, const GpuContext& context);

}  // namespace clover::kernels
