#pragma once

#include "kernels/attention/attention_plan.h"
#include "kernels/calls.h"
#include "kernels/gpu/stream.h"
#include "kernels/linear/linear_plan.h"

// What the .cu files offer to cuda.cc: an op on raw pointers and a stream.
namespace clover::kernels::cuda {

/// Of the current GPU.  Those of compute capability 8.6, 8.9 and 12 are not roomy; `clusters`: of sm_90,
/// untried (uses_warpgroup_products).
GpuRoom gpu_room();
/// call.norm is null unless norms_rows(call).  `workspace`: linear_workspace(..) floats; `arrived`:
/// most_split_tiles zeros, which it leaves zero.
int64_t linear_workspace(const LinearCall& call, const LinearPlan& plan);
void launch_linear(const LinearCall& call, const LinearPlan& plan, float* workspace, unsigned* arrived,
                   Stream stream);
/// A product of 16-bit weights by clusters of blocks.
void launch_linear_clusters(const LinearCall& call, const ClusterPlan& plan, Stream stream);
/// Who works on which keys, in `plan` (attention_plan_words(call) words): for all calls with these rows,
/// heads and pages, whatever their q, k, v and out.
void launch_plan_attention(const AttentionCall& call, int32_t* plan, Stream stream);
int64_t attention_plan_words(const AttentionCall& call);
/// `workspace`: attention_workspace(call) floats.  No path is longer than its sequence's pages.
void launch_tree_attention(const AttentionCall& call, int32_t* plan, float* workspace, Stream stream);
int64_t attention_workspace(const AttentionCall& call);
/// Of wide tiles (sm_90), which round queries and weights to the cache's 16 bits.
void launch_wide_attention(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                           Stream stream);

/// panels: a weight's, 16-bit inputs paired; out [rows, inputs].
void launch_gather_rows(const void* panels, const int64_t* ids, int64_t rows, int64_t inputs, Element element,
                        void* out, Stream stream);

/// row_bytes: a multiple of 16.
void launch_move_rows(const MoveCall& call, Stream stream);

/// Row-wise: x [rows, width] and so on, as in rms_norm.h, activation.h, top_k.h and sample.h.
struct NormCall {
  const float* x;
  const int64_t* chosen;  // [rows], or null: each row of x
  const float* added;     // [rows, width], whose SiLU is added first, or null
  const float* weight;
  float eps;
  int64_t rows, width;
  void* out;
  Element element;
};
void launch_rms_norm(const NormCall& call, Stream stream);
/// Of rows of a weight, as launch_gather_rows finds them; of `call`, x and added are not looked at.
void launch_rms_norm_of_panels(const void* panels, Element element, const NormCall& call, Stream stream);
void launch_add_silu(float* z, const float* a, int64_t count, Stream stream);
struct GatedCall {
  const float* s;
  const int64_t* chosen;  // [rows], or null: each its own
  const float* q;
  const void* kv;          // [rows, 2 width] fp32, or
  const int64_t* kv_rows;  // [rows] of [.., 2 width] of `element`, or null
  int64_t rows, width, groups;
  float eps;
  bool silu;
  float* out;
  void* rounded;
  Element element;
};
void launch_add_gated(const GatedCall& call, Stream stream);
/// `workspace`: as many bytes as top_k_workspace says, for an arg_max with k = 1.
void launch_top_k(const float* logits, int64_t rows, int64_t width, int64_t k, void* workspace, float* values,
                  int64_t* indices, Stream stream);
void launch_arg_max(const float* logits, int64_t rows, int64_t width, void* workspace, int64_t* indices,
                    Stream stream);
int64_t top_k_workspace(int64_t rows, int64_t width, int64_t k);
/// Of keys [rows, count] of logits (ranking.h) instead of logits.
void launch_best_key(const uint64_t* keys, int64_t rows, int64_t count, int64_t* indices, Stream stream);
/// `workspace`: as many bytes as log_sum_exp_workspace says.
void launch_log_sum_exp(const float* logits, int64_t rows, int64_t width, void* workspace, float* out,
                        Stream stream);
int64_t log_sum_exp_workspace(int64_t rows, int64_t width);
/// Both of them; names [width] or null; `workspace`: as many bytes as both say.
void launch_top_k_and_log_sum(const float* logits, int64_t rows, int64_t width, int64_t k,
                              const int64_t* names, void* workspace, float* values, int64_t* indices,
                              float* log_sums, Stream stream);
/// rules: [rows, 5] RowRule.
void launch_sample(const float* logits, const double* rules, int64_t rows, int64_t width, int64_t* tokens,
                   Stream stream);

void launch_grow_level(const GrowthCall& call, Stream stream);
void launch_follow_trees(const FollowCall& call, Stream stream);

}  // namespace clover::kernels::cuda
