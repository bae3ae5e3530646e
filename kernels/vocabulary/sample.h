#pragma once

#include <cstdint>
#include <limits>

#include "kernels/op/call.h"

namespace clover::kernels {

/// The only randomness of the project: Philox4x32-10 (Salmon et al., 2011) keyed by seed and counted by
/// (request, choice, position).  Uniform in [0, 1), 53 bits.
double philox_uniform(uint64_t seed, uint64_t request, uint64_t choice, uint64_t position);

constexpr int64_t most_sampled = int64_t{1} << 22;  // tokens of a vocabulary

struct SamplingRule {
  double temperature = 0;  // 0: arg-max
  double top_p = 1;   // keep the smallest set of most probable tokens whose mass reaches top_p (the crossing
                      // one included, as Hugging Face does); 1: all
  int64_t top_k = 0;  // keep the k most probable (ties at the edge to the lowest id); 0: all
  double min_p = 0;   // keep tokens of at least this share of the most probable one's probability; 0: all
};

/// One token from one row of logits (fp32 [V], contiguous), `uniform` in [0, 1) being the only randomness.
/// Order: temperature, then top-k, then top-p over what is left, then min-p.  Among kept tokens, taken from
/// the most probable down (ties to the lowest id), the first whose cumulative mass exceeds uniform * kept
/// mass. Temperature 0 is arg-max with ties to the lowest id.  -1 where all logits are NaN or -inf.
int64_t sample(const float* logits, int64_t vocab, const SamplingRule& rule, double uniform);

/// The same for many rows, each under a rule of its own, where the logits lie.  A GPU's exponentials are not
/// a CPU's to the last bit, so a token may differ between them where `uniform` falls on its edge.
///   logits fp32 [R, V] contiguous; rules f64 [R, 5] of RowRules, which a GPU does not check  ->  i64 [R]
at::Tensor sample(const at::Tensor& logits, const at::Tensor& rules);

struct RowRule {
  double temperature = 0, top_p = 1, top_k = 0, uniform = 0;  // as in SamplingRule
  double farthest =
      std::numeric_limits<double>::infinity();  // -log(min_p), which a GPU would be slow to compute
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
