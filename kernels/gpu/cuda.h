#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "kernels/attention/attention.h"
#include "kernels/calls.h"
#include "kernels/linear/linear.h"
#include "kernels/rows/activation.h"
#include "kernels/trees/follow_trees.h"
#include "kernels/trees/tree_growth.h"
#include "kernels/weights/packed_weight.h"

// The CUDA twins.  A build without CUDA links no_cuda.cc, where each op throws.
namespace clover::kernels::cuda {

struct LinearPlan;

void linear(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate);
at::Tensor linear_arg_max(const LinearInput& x, const PackedWeight& weight);
void linear_silu_mul(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out);
void linear_rope_and_store(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos,
                           const at::Tensor& sin, const at::Tensor& slots, at::Tensor& q, at::Tensor& k,
                           at::Tensor& v);
/// Any of these, of x, by a plan that its GPU can follow.
void linear_by(const LinearPlan& plan, const LinearCall& call, const at::Tensor& x);
/// dense [R, K] of the weight's dtype; ids i64 [R], each in [0, N), which nobody checks.
void rows(const PackedWeight& weight, const at::Tensor& ids, at::Tensor& dense);
at::Tensor plan_attention(const AttentionRows& rows, int64_t query_heads, const at::Tensor& k);
void tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionRows& rows,
                    double scale, at::Tensor& out);
void edit_logits(at::Tensor& logits, const at::Tensor& edits, const at::Tensor& rows);
void move_rows(at::Tensor& cache, const at::Tensor& moves);
/// Of x[rows[r]] + silu(a[r]); rows, which nobody checks, and a may be undefined.
void rms_norm(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& a, const at::Tensor& weight,
              double eps, at::Tensor& out);
void rms_norm_of(const PackedWeight& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out);
void add_silu_(at::Tensor& z, const at::Tensor& a);
void add_gated(const at::Tensor& s, const at::Tensor& rows, const at::Tensor& q, const KeyValues& kv,
               int64_t groups, double eps, GateActivation activation, at::Tensor& out, at::Tensor& rounded);
std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k);
at::Tensor arg_max(const at::Tensor& logits);
at::Tensor log_sum_exp(const at::Tensor& logits);
std::tuple<at::Tensor, at::Tensor, at::Tensor> top_k_and_log_sum(const at::Tensor& logits, int64_t k,
                                                                 const at::Tensor& names);
/// rules on the device, which nobody checks.
at::Tensor sample(const at::Tensor& logits, const at::Tensor& rules);
void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                const LevelRule& rule, int64_t most_live, GrowingTrees& trees);
void follow_trees(const JudgedTrees& judged, FollowedTrees& followed);

}  // namespace clover::kernels::cuda
