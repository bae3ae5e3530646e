#pragma once

#include "kernels/op/call.h"

// The call of kernels/attention/attention.h.
namespace clover::kernels {

/// Keys are taken in blocks of so many positions, aligned to position 0; partial results begin at multiples
/// of the split.
constexpr int64_t attention_block = 64, attention_split = 256;
/// Head sizes are multiples of 8 up to this (256 on a GPU); query heads a key head are at most so many.
constexpr int64_t largest_head_size = 1024, most_queries_a_key = 48;

struct AttentionCall {
  const float* q;  // [rows, query_heads, head_size]
  const void* k;   // [pages, kv_heads, page_size, head_size] of `cache`
  const void* v;   // the same
  void* out;       // [rows, query_heads, head_size] of `result`
  const int32_t *sequence, *contiguous, *path_begin, *path, *page_table;  // as in AttentionRows
  int64_t rows, sequences, query_heads, kv_heads, head_size, pages, page_size, pages_per_sequence;
  Element cache, result;
  float scale;
  int32_t* plan;  // AttentionRows::plan, or null: run_on_gpu makes one
};
void run_on_cpu(const AttentionCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const AttentionCall& call, const GpuContext& context);

/// Makes AttentionRows::plan, of attention_plan_words(call) words; q, k, v and out are not read.
CLOVER_GPU_KERNEL void make_attention_plan(const AttentionCall& call, int32_t* plan,
                                           const GpuContext& context);
/// 0 for a call whose rows are taken in several parts, each with a plan of its own.
CLOVER_GPU_KERNEL int64_t attention_plan_words(const AttentionCall& call);

}  // namespace clover::kernels
