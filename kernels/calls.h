#pragma once

#include <cstdint>

// What an op's kernels are called with after its checks: raw pointers, so that neither files compiled for a
// wide instruction family nor files compiled for a GPU see a tensor.  Meanings and shapes: the op's own
// header.
namespace clover::kernels {

enum class Element { fp32, bf16, fp16 };

struct LinearCall {
  const void* x;       // [rows, inputs]
  const void* panels;  // PackedWeight's layout on the device of the call
  const float* bias;   // [outputs] or null
  float* y;            // [rows, outputs]
  int64_t rows, outputs, inputs;
  Element element;
  bool accumulate;
};

struct AttentionCall {
  const float* q;
  const void* k;
  const void* v;
  void* out;
  const int32_t *sequence, *contiguous, *path_begin, *path, *page_table;
  int64_t rows, sequences, query_heads, kv_heads, head_size, page_size, pages_per_sequence;
  Element cache, result;
  float scale;
};

struct RopeCall {
  const float *qkv, *cos, *sin;
  const int64_t* slots;
  float* q;
  void *k, *v;
  int64_t rows, query_heads, kv_heads, head_size;
  Element cache;
};

}  // namespace clover::kernels
