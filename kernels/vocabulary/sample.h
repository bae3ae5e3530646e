#pragma once

#include <cstdint>
#include <limits>

#include "kernels/op/call.h"

namespace clover::kernels {

/// Philox4x32-10 (Salmon et al., 2011), a counter-based random generator: `seed` is its key, and (request,
/// choice, position) its counter.  All random numbers of the project come from it.  Uniform in [0, 1), 53
/// bits. c10::Error if choice or position is 2^32 or more.
double philox_uniform(uint64_t seed, uint64_t request, uint64_t choice, uint64_t position);

/// The largest vocabulary that is sampled from, in tokens.
constexpr int64_t max_sampled_vocabulary = int64_t{1} << 22;

struct SamplingRule {
  double temperature = 0;  // 0: arg-max
  // Keep the fewest most probable tokens whose probabilities sum to top_p or more (as Hugging Face); 1: all.
  double top_p = 1;
  int64_t top_k = 0;  // keep the k most probable tokens (ties to the lowest id); 0: all
  // Keep tokens that are at least min_p times as probable as the most probable one; 0: all.
  double min_p = 0;
};

/// Samples one token from one row of logits (fp32 [V], contiguous); `uniform` is a random number in [0, 1).
/// Order: temperature, then top-k, then top-p over the remaining tokens, then min-p.  The kept tokens are
/// sorted by probability, largest first (ties to the lowest id); the result is the first token at which their
/// cumulative probability exceeds uniform * (the sum over kept tokens).  Temperature 0 is arg-max with ties
/// to the lowest id.  -1 if all logits are NaN or -inf.
int64_t sample(const float* logits, int64_t vocab, const SamplingRule& rule, double uniform);

/// The same for R rows, each with its own rule, on the device of the logits.  The exponentials of CPU and GPU
/// differ in the last bit, so that a `uniform` on the boundary between two tokens may yield either.
///   logits fp32 [R, V] contiguous; rules f64 [R, 5] of RowRules, which a GPU does not check  ->  i64 [R]
at::Tensor sample(const at::Tensor& logits, const at::Tensor& rules);

/// The rule of one row of a batch, as the tensor `rules` holds it.
struct RowRule {
  double temperature = 0, top_p = 1, top_k = 0;  // as in SamplingRule
  double uniform = 0;                            // random number in [0, 1)
  // -log(min_p), infinite without min-p: tokens are kept if their logit, divided by the temperature, is at
  // most this much below the largest one.
  double max_distance = std::numeric_limits<double>::infinity();
};
static_assert(sizeof(RowRule) == 5 * sizeof(double));

struct SampleCall {
  const float* logits;   // [rows, width]
  const RowRule* rules;  // [rows]
  int64_t rows, width;
  int64_t* tokens;  // [rows]
};
void run_on_cpu(const SampleCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const SampleCall& call, const GpuContext& context);

}  // namespace clover::kernels
