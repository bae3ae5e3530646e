#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/weights/packed_weight.h"
#include "model/cache/kv_cache.h"
#include "model/target/target_config.h"

namespace clover::model {

/// One decoder layer's weights as inference reads them: products that share an input are packed as one, in
/// the order of rows that kernels/linear/linear.h asks for.
struct DecoderWeights {
  at::Tensor input_norm;           // fp32 [H]
  kernels::QkvWeight qkv;          // [(Hq + 2 Hkv) * d, H]
  kernels::PackedWeight output;    // [H, Hq * d]
  at::Tensor post_attention_norm;  // fp32 [H]; undefined: the layer has no MLP half
  kernels::PackedWeight gate_up;   // [2I, H]
  kernels::PackedWeight down;      // [H, I]
};

/// What a checkpoint holds of queries, keys and values.
struct Projections {
  at::Tensor q, k, v;  // [Hq * d, H] and twice [Hkv * d, H], of the model's dtype
  at::Tensor q_bias = {}, k_bias = {}, v_bias = {};  // fp32, or undefined
  at::Tensor q_norm = {}, k_norm = {};               // fp32 [d], or undefined
};
kernels::QkvWeight pack_qkv(const Projections& projections, const TargetConfig& config, at::Device device);
Projections unpack_qkv(const kernels::QkvWeight& qkv, const TargetConfig& config);

/// gate and up [I, H] as one, and back.
kernels::PackedWeight pack_gate_up(const at::Tensor& gate, const at::Tensor& up);
std::vector<at::Tensor> unpack_gate_up(const kernels::PackedWeight& gate_up);

/// What layers like `weights` write on their way, for R rows; they take turns.
struct LayerRoom {
  LayerRoom(const DecoderWeights& weights, const TargetConfig& config, int64_t rows);

  at::Tensor query;  // fp32 [R, Hq, d]
  at::Tensor mixed;  // [R, Hq * d], of the model's dtype
  at::Tensor inner;  // [R, I], the same; undefined without an MLP half
};

/// x <- x + Attention(norm(x)); x <- x + MLP(norm(x)).  `x` fp32 [R, H] in place; keys and values go to
/// `layer` of `cache`. Products read the model's dtype, sums are fp32.
void decoder_layer(const DecoderWeights& weights, const TargetConfig& config, const Placement& placement,
                   KvCache& cache, int64_t layer, LayerRoom& room, at::Tensor& x);

/// The same of a pass's last layer on the CPU where nothing but `rows` (i64 [W], ascending) of its output is
/// read: `x` becomes theirs, [W, H].  Keys and values of all rows are written.
void decoder_layer_of_rows(const DecoderWeights& weights, const TargetConfig& config,
                           const Placement& placement, KvCache& cache, int64_t layer, const at::Tensor& rows,
                           LayerRoom& room, at::Tensor& x);

}  // namespace clover::model
