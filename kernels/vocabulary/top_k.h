#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace clover::kernels {

/// The k largest of each row, best first, ties to the lowest index; NaN counts as -inf.
///   logits fp32 [R, V] contiguous, 1 <= k <= V  ->  values fp32 [R, k], indices i64 [R, k]
std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k);

/// Index of the largest of each row, ties to the lowest index, NaN as -inf; -1 of a row of nothing but NaN
/// and -inf.  fp32 [R, V] -> i64 [R]
at::Tensor arg_max(const at::Tensor& logits);

/// log(sum_v exp(logits[r, v])) in one fixed order.  fp32 [R, V] -> fp32 [R]
at::Tensor log_sum_exp(const at::Tensor& logits);

/// What top_k and log_sum_exp yield, to the bit: values, indices, sums; for each index j names[j] instead,
/// where `names` (i64 [V]) is defined.  A GPU reads the logits once for both.
std::tuple<at::Tensor, at::Tensor, at::Tensor> top_k_and_log_sum(const at::Tensor& logits, int64_t k,
                                                                 const at::Tensor& names);

}  // namespace clover::kernels
