#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/weights/packed_weight.h"
#include "model/cache/kv_cache.h"
#include "model/target/target_config.h"

namespace clover::model {

/// The weights of one decoder layer, packed for inference.  Matrices that multiply the same input are packed
/// as one; kernels/linear/linear.h says in which order.
/// Letters: H hidden size, I width of the MLP, Hq query heads, Hkv key and value heads, d size of a head.
struct DecoderWeights {
  at::Tensor input_norm;           // fp32 [H]
  kernels::QkvWeight qkv;          // [(Hq + 2 Hkv) * d, H]
  kernels::PackedWeight output;    // [H, Hq * d]
  at::Tensor post_attention_norm;  // fp32 [H]; undefined if the layer has no MLP
  kernels::PackedWeight gate_up;   // [2I, H], rows of gate and up in turn
  kernels::PackedWeight down;      // [H, I]
};

/// The projections to queries, keys and values of a layer, as a Hugging Face checkpoint stores them.
struct Projections {
  at::Tensor q, k, v;  // [Hq * d, H], [Hkv * d, H], [Hkv * d, H], in the model's dtype
  at::Tensor q_bias = {}, k_bias = {}, v_bias = {};  // fp32 [Hq * d], [Hkv * d], [Hkv * d], or undefined
  at::Tensor q_norm = {}, k_norm = {};               // fp32 [d], RMSNorm of each head, or undefined
};
/// Packs them as one matrix; unpack_qkv is the inverse.
kernels::QkvWeight pack_qkv(const Projections& projections, const TargetConfig& config, at::Device device);
Projections unpack_qkv(const kernels::QkvWeight& qkv, const TargetConfig& config);

/// Packs gate and up, each [I, H], as one matrix; unpack_gate_up is the inverse and returns both.
kernels::PackedWeight pack_gate_up(const at::Tensor& gate, const at::Tensor& up);
std::vector<at::Tensor> unpack_gate_up(const kernels::PackedWeight& gate_up);

/// Intermediate results of a layer for R rows.  All layers of a pass use the same buffers in turn.
struct LayerBuffers {
  LayerBuffers(const DecoderWeights& weights, const TargetConfig& config, int64_t rows);

  at::Tensor query;             // fp32 [R, Hq, d], rotated
  at::Tensor attention_output;  // [R, Hq * d] in the model's dtype
  at::Tensor mlp_hidden;        // [R, I] in the model's dtype; undefined without an MLP
};

/// Runs one decoder layer in place on `x`, fp32 [R, H]:
///   x <- x + Attention(norm(x)); x <- x + MLP(norm(x))
/// Keys and values are written to layer `layer` of `cache`.  Products read inputs in the model's dtype and
/// sum in fp32.
void decoder_layer(const DecoderWeights& weights, const TargetConfig& config, const Placement& placement,
                   KvCache& cache, int64_t layer, LayerBuffers& buffers, at::Tensor& x);

/// The same, except that queries, keys and values are projected from `input` [R, K] instead of norm(x).  K is
/// the input width of weights.qkv.
void decoder_layer(const DecoderWeights& weights, const TargetConfig& config,
                   const kernels::LinearInput& input, const Placement& placement, KvCache& cache,
                   int64_t layer, LayerBuffers& buffers, at::Tensor& x);

/// Runs a layer of which only the output rows `rows` (i64 [W], ascending) are needed: `x` [R, H] becomes
/// fp32 [W, H].  Keys and values are written for all R rows.  On the CPU only; for the last layer of a pass.
void decoder_layer_selected_rows(const DecoderWeights& weights, const TargetConfig& config,
                                 const Placement& placement, KvCache& cache, int64_t layer,
                                 const at::Tensor& rows, LayerBuffers& buffers, at::Tensor& x);

}  // namespace clover::model
