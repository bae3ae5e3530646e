#pragma once

#include <tuple>

#include "kernels/op/call.h"

namespace clover::kernels {

/// The k largest of each row, best first, ties to the lowest index; NaN counts as -inf.
///   logits fp32 [R, V] contiguous, 1 <= k <= V  ->  values fp32 [R, k], indices i64 [R, k]
/// Where `names` (i64 [V]) is defined, names[j] takes the place of index j.
std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k, const at::Tensor& names);
std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k);

/// Index of the largest of each row, ties to the lowest index, NaN as -inf; -1 for a row that holds nothing
/// but NaN and -inf.  fp32 [R, V] -> i64 [R]
at::Tensor arg_max(const at::Tensor& logits);

/// log(sum_v exp(logits[r, v])) in one fixed order.  fp32 [R, V] -> fp32 [R]
at::Tensor log_sum_exp(const at::Tensor& logits);

/// What top_k and log_sum_exp yield, to the bit: values, indices, sums.  A GPU reads the logits once for
/// both.
std::tuple<at::Tensor, at::Tensor, at::Tensor> top_k_and_log_sum(const at::Tensor& logits, int64_t k,
                                                                 const at::Tensor& names);

struct TopKCall {
  const float* logits;  // [rows, width]
  int64_t rows, width, k;
  float* values;         // [rows, k]
  int64_t* indices;      // [rows, k]
  const int64_t* names;  // [width] or null
  float* log_sums;       // [rows] or null
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

/// The arg-max of keys (vocabulary/ranking.cuh) in place of logits: what is left to do for linear_arg_max on
/// a GPU.
struct BestKeyCall {
  const uint64_t* keys;  // [rows, count]
  int64_t rows, count;
  int64_t* indices;  // [rows]
};
CLOVER_GPU_KERNEL void run_on_gpu(const BestKeyCall& call, const GpuContext& context);

}  // namespace clover::kernels
