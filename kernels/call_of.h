#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention/attention.h"
#include "kernels/calls.h"
#include "kernels/linear/linear.h"
#include "kernels/trees/follow_trees.h"
#include "kernels/trees/tree_growth.h"
#include "kernels/weights/packed_weight.h"

// From an op's checked arguments to what its kernels are called with, on either device.
namespace clover::kernels {

/// c10::Error for other than bf16, fp16 and fp32.
Element element_of(at::ScalarType type);

/// Without an epilogue and where its results go.
LinearCall call_of(const LinearInput& x, const PackedWeight& weight);
LinearCall call_of(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
                   bool accumulate);
LinearCall call_of(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out);
/// keys: i64 [R, panels of the weight].
LinearCall best_call_of(const LinearInput& x, const PackedWeight& weight, at::Tensor& keys);
LinearCall call_of(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos, const at::Tensor& sin,
                   const at::Tensor& slots, at::Tensor& q, at::Tensor& k, at::Tensor& v);
/// Without queries, values and results.
AttentionCall call_of(const AttentionRows& rows, int64_t query_heads, const at::Tensor& k);
AttentionCall call_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const AttentionRows& rows, double scale, at::Tensor& out);
MoveCall call_of(at::Tensor& cache, const at::Tensor& moves);
GrowthCall call_of(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                   const LevelRule& rule, int64_t most_live, GrowingTrees& trees);
FollowCall call_of(const JudgedTrees& judged, FollowedTrees& followed);

}  // namespace clover::kernels
