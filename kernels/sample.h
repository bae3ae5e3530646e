#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace clover::kernels {

/// The only randomness of the project: Philox4x32-10 (Salmon et al., 2011) keyed by seed and counted by
/// (request, choice, position).  Uniform in [0, 1), 53 bits.
double philox_uniform(uint64_t seed, uint64_t request, uint64_t choice, uint64_t position);

struct SamplingRule {
  double temperature = 0;  // 0: arg-max
  double top_p = 1;   // keep the smallest set of most probable tokens whose mass reaches top_p (the crossing
                      // one included, as Hugging Face does); 1: all
  int64_t top_k = 0;  // keep the k most probable (ties at the edge to the lowest id); 0: all
};

/// One token from one row of logits (fp32 [V], contiguous), `uniform` in [0, 1) being the only randomness.
/// Order: temperature, then top-k, then top-p over what is left.  Among kept tokens, taken from the most
/// probable down (ties to the lowest id), the first whose cumulative mass exceeds uniform * kept mass.
/// Temperature 0 is arg-max with ties to the lowest id.
int64_t sample(const float* logits, int64_t vocab, const SamplingRule& rule, double uniform);

}  // namespace clover::kernels
