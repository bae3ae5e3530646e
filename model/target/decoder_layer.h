#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/weights/packed_weight.h"
#include "model/cache/kv_cache.h"
#include "model/target/target_config.h"

namespace clover::model {

/// The weights of one decoder layer, packed for inference: matrices with a common input are one matrix, with
/// its rows in the order of kernels/linear/linear.h.
struct DecoderWeights {
  at::Tensor input_norm;           // fp32 [H]
  kernels::QkvWeight qkv;          // [(Hq + 2 Hkv) * d, H]
  kernels::PackedWeight output;    // [H, Hq * d]
  at::Tensor post_attention_norm;  // fp32 [H]; undefined: the layer has no MLP
  kernels::PackedWeight gate_up;   // [2I, H]
  kernels::PackedWeight down;      // [H, I]
};

/// Queries, keys and values of a layer as a checkpoint stores them.
struct Projections {
  at::Tensor q, k, v;  // [Hq * d, H], [Hkv * d, H], [Hkv * d, H], in the model's dtype
  at::Tensor q_bias = {}, k_bias = {}, v_bias = {};  // fp32, or undefined
  at::Tensor q_norm = {}, k_norm = {};               // fp32 [d], or undefined
};
kernels::QkvWeight pack_qkv(const Projections& projections, const TargetConfig& config, at::Device device);
Projections unpack_qkv(const kernels::QkvWeight& qkv, const TargetConfig& config);

/// Packs gate and up, each [I, H], as one matrix; and unpacks them.
kernels::PackedWeight pack_gate_up(const at::Tensor& gate, const at::Tensor& up);
std::vector<at::Tensor> unpack_gate_up(const kernels::PackedWeight& gate_up);

/// Buffers for the intermediate results of a layer for R rows.  All layers of a pass use the same buffers.
struct LayerBuffers {
  LayerBuffers(const DecoderWeights& weights, const TargetConfig& config, int64_t rows);

  at::Tensor query;             // fp32 [R, Hq, d]: queries
  at::Tensor attention_output;  // [R, Hq * d] in the model's dtype
  at::Tensor mlp_hidden;        // [R, I] in the model's dtype; undefined without an MLP
};

/// x <- x + Attention(norm(x)); x <- x + MLP(norm(x)), in place; `x` is fp32 [R, H].  Keys and values are
/// written to `layer` of `cache`.  Products have inputs in the model's dtype and fp32 sums.
void decoder_layer(const DecoderWeights& weights, const TargetConfig& config, const Placement& placement,
                   KvCache& cache, int64_t layer, LayerBuffers& buffers, at::Tensor& x);

/// The same where queries, keys and values read `input` in place of norm(x).
void decoder_layer(const DecoderWeights& weights, const TargetConfig& config,
                   const kernels::LinearInput& input, const Placement& placement, KvCache& cache,
                   int64_t layer, LayerBuffers& buffers, at::Tensor& x);

/// The first for the last layer of a pass on the CPU when only `rows` (i64 [W], ascending) of its output are
/// needed: `x` becomes these rows, fp32 [W, H].  Keys and values are written for all rows.
void decoder_layer_selected_rows(const DecoderWeights& weights, const TargetConfig& config,
                                 const Placement& placement, KvCache& cache, int64_t layer,
                                 const at::Tensor& rows, LayerBuffers& buffers, at::Tensor& x);

}  // namespace clover::model
