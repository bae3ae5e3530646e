#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/packed_weight.h"
#include "model/kv_cache.h"
#include "model/target_config.h"

namespace clover::model {

/// One Llama decoder layer's weights as inference reads them: products that share an input are packed as one.
struct DecoderWeights {
  at::Tensor input_norm;           // fp32 [H]
  kernels::PackedWeight qkv;       // [(Hq + 2 Hkv) * d, H]
  kernels::PackedWeight output;    // [H, Hq * d]
  at::Tensor post_attention_norm;  // fp32 [H]; undefined: the layer has no MLP half
  kernels::PackedWeight gate_up;   // [2I, H]
  kernels::PackedWeight down;      // [H, I]
};

/// x <- x + Attention(norm(x)); x <- x + MLP(norm(x)).  `x` fp32 [R, H] in place; keys and values go to
/// `layer` of `cache`. Products read the model's dtype, sums are fp32.
void decoder_layer(const DecoderWeights& weights, const TargetConfig& config, const Placement& placement,
                   KvCache& cache, int64_t layer, at::Tensor& x);

}  // namespace clover::model
