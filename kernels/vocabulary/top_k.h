#pragma once

#include <tuple>

#include "kernels/op/call.h"

namespace clover::kernels {

/// The k largest of each row, best first, ties to the lowest index; NaN counts as -inf.
///   logits fp32 [R, V] contiguous, 1 <= k <= V  ->  values fp32 [R, k], indices i64 [R, k]
/// If `token_map` (i64 [V]) is defined, the result holds token_map[j] in place of index j: with a draft
/// vocabulary, the id in the target's vocabulary.
std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k, const at::Tensor& token_map);
std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k);

/// Index of the largest of each row, ties to the lowest index, NaN as -inf; -1 for a row that holds nothing
/// but NaN and -inf.  fp32 [R, V] -> i64 [R]
at::Tensor arg_max(const at::Tensor& logits);

/// log(sum_v exp(logits[r, v])) in one fixed order.  fp32 [R, V] -> fp32 [R]
at::Tensor log_sum_exp(const at::Tensor& logits);

/// The results of top_k and log_sum_exp, with the same bits: values, indices, log-sums.  A GPU reads the
/// logits once for both.
std::tuple<at::Tensor, at::Tensor, at::Tensor> top_k_and_log_sum(const at::Tensor& logits, int64_t k,
                                                                 const at::Tensor& token_map);

struct TopKCall {
  const float* logits;  // [rows, width]
  int64_t rows, width, k;
  float* values;             // [rows, k]
  int64_t* indices;          // [rows, k]
  const int64_t* token_map;  // [width] or null
  float* log_sums;           // [rows] or null
};
void run_on_cpu(const TopKCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const TopKCall& call, const GpuContext& context);

struct ArgMaxCall {
  const float* logits;  // [rows, width]
  int64_t rows, width;
  int64_t* indices;  // [rows]
};
void run_on_cpu(const ArgMaxCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const ArgMaxCall& call, const GpuContext& context);

struct LogSumCall {
  const float* logits;  // [rows, width]
  int64_t rows, width;
  float* out;  // [rows]
};
void run_on_cpu(const LogSumCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const LogSumCall& call, const GpuContext& context);

/// The arg-max of ranking keys (vocabulary/ranking.cuh) instead of logits: the last step of linear_arg_max
/// (kernels/linear/linear.h) on a GPU.
struct BestKeyCall {
  const uint64_t* keys;  // [rows, count]
  int64_t rows, count;
  int64_t* indices;  // [rows]
};
CLOVER_GPU_KERNEL void run_on_gpu(const BestKeyCall& call, const GpuContext& context);

}  // namespace clover::kernels
