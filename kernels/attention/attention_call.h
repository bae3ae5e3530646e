#pragma once

#include "kernels/op/call.h"

// The call of tree_attention (kernels/attention/attention.h).
namespace clover::kernels {

/// Positions in a block of keys, and in a partial result; both are aligned to position 0.
constexpr int64_t attention_block = 64, attention_split = 256;
/// Head sizes are multiples of 8 up to max_head_size (256 on a GPU).  On a CPU a kv head serves at most
/// max_query_heads_per_kv_head query heads.
constexpr int64_t max_head_size = 1024, max_query_heads_per_kv_head = 48;

struct AttentionCall {
  const float* q;  // [rows, query_heads, head_size]
  const void* k;   // [pages, kv_heads, page_size, head_size] of dtype `cache`
  const void* v;   // the same
  void* out;       // [rows, query_heads, head_size] of dtype `result`
  // As in AttentionRows (attention.h); slots path[path_begin[r] .. path_begin[r + 1]) follow the first
  // contiguous[r] positions of row r.
  const int32_t *sequence, *contiguous, *path_begin, *path, *page_table;
  int64_t rows, sequences, query_heads, kv_heads, head_size, pages, page_size, pages_per_sequence;
  Element cache, result;
  float scale;
  int32_t* plan;  // AttentionRows::plan, or null: run_on_gpu makes one
};
void run_on_cpu(const AttentionCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const AttentionCall& call, const GpuContext& context);

/// Makes AttentionRows::plan, an array of attention_plan_words(call) int32.  It does not use q, k, v and out.
CLOVER_GPU_KERNEL void make_attention_plan(const AttentionCall& call, int32_t* plan,
                                           const GpuContext& context);
/// Length of the call's plan in int32; 0 for a call whose rows are taken in several portions, each with its
/// own plan.
CLOVER_GPU_KERNEL int64_t attention_plan_words(const AttentionCall& call);

}  // namespace clover::kernels
