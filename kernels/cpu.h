#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"
#include "kernels/rows/activation.h"
#include "kernels/trees/follow_trees.h"
#include "kernels/trees/tree_growth.h"
#include "kernels/weights/packed_weight.h"

// The CPU twins, called by the dispatching functions after their checks.
namespace clover::kernels::cpu {

void linear(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate);
at::Tensor linear_arg_max(const LinearInput& x, const PackedWeight& weight);
void linear_silu_mul(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out);
void linear_rope_and_store(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos,
                           const at::Tensor& sin, const at::Tensor& slots, at::Tensor& q, at::Tensor& k,
                           at::Tensor& v);
void tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionRows& rows,
                    double scale, at::Tensor& out);
void edit_logits(at::Tensor& logits, const at::Tensor& edits, const at::Tensor& rows);
void move_rows(at::Tensor& cache, const at::Tensor& moves);
void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out);
void add_silu_(at::Tensor& z, const at::Tensor& a);
/// out holds the rows of s on entry.
void add_gated_(at::Tensor& out, const at::Tensor& q, const at::Tensor& kv, int64_t groups, double eps,
                GateActivation activation);
std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k);
at::Tensor arg_max(const at::Tensor& logits);
at::Tensor log_sum_exp(const at::Tensor& logits);
at::Tensor sample(const at::Tensor& logits, const at::Tensor& rules);
void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                const LevelRule& rule, int64_t most_live, GrowingTrees& trees);
void follow_trees(const JudgedTrees& judged, FollowedTrees& followed);

}  // namespace clover::kernels::cpu
