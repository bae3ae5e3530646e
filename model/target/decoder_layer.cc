#include "model/target/decoder_layer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"

namespace clover::model {
namespace {

/// Makes the two elements that RoPE rotates together adjacent: along the first dimension, elements i and
/// i + d/2 of each head become elements 2i and 2i + 1.  deinterleave_halves is the inverse.
at::Tensor interleave_halves(const at::Tensor& heads, int64_t d) {
  return heads.reshape({-1, 2, d / 2, heads.numel() / heads.size(0)}).transpose(1, 2).reshape(heads.sizes());
}
at::Tensor deinterleave_halves(const at::Tensor& heads, int64_t d) {
  return heads.reshape({-1, d / 2, 2, heads.numel() / heads.size(0)}).transpose(1, 2).reshape(heads.sizes());
}

/// Splits the rows of an unpacked QkvWeight matrix, or its bias, into those of queries, keys and values.
std::vector<at::Tensor> split_qkv(const at::Tensor& joined, const TargetConfig& config) {
  const int64_t d = config.head_dim;
  const auto parts = joined.split_with_sizes({config.query_width(), config.kv_width(), config.kv_width()}, 0);
  return {deinterleave_halves(parts[0], d), deinterleave_halves(parts[1], d), parts[2]};
}

}  // namespace

kernels::QkvWeight pack_qkv(const Projections& projections, const TargetConfig& config, at::Device device) {
  const int64_t d = config.head_dim;
  kernels::QkvWeight qkv;
  qkv.matrix = kernels::PackedWeight::pack(
                   {interleave_halves(projections.q, d), interleave_halves(projections.k, d), projections.v})
                   .to(device);
  if (projections.q_bias.defined())
    qkv.bias = at::cat({interleave_halves(projections.q_bias, d), interleave_halves(projections.k_bias, d),
                        projections.v_bias})
                   .to(device);
  if (projections.q_norm.defined()) {
    qkv.query_norm = interleave_halves(projections.q_norm, d).to(device);
    qkv.key_norm = interleave_halves(projections.k_norm, d).to(device);
    qkv.norm_eps = config.norm_eps;
  }
  return qkv;
}

Projections unpack_qkv(const kernels::QkvWeight& qkv, const TargetConfig& config) {
  const auto matrices = split_qkv(qkv.matrix.unpack(), config);
  Projections projections{.q = matrices[0], .k = matrices[1], .v = matrices[2]};
  if (qkv.bias.defined()) {
    const auto biases = split_qkv(qkv.bias.cpu(), config);
    projections.q_bias = biases[0], projections.k_bias = biases[1], projections.v_bias = biases[2];
  }
  if (qkv.query_norm.defined()) {
    projections.q_norm = deinterleave_halves(qkv.query_norm.cpu(), config.head_dim);
    projections.k_norm = deinterleave_halves(qkv.key_norm.cpu(), config.head_dim);
  }
  return projections;
}

kernels::PackedWeight pack_gate_up(const at::Tensor& gate, const at::Tensor& up) {
  return kernels::PackedWeight::pack({at::stack({gate, up}, 1).view({-1, gate.size(1)})});
}

std::vector<at::Tensor> unpack_gate_up(const kernels::PackedWeight& gate_up) {
  return gate_up.unpack().view({-1, 2, gate_up.inputs()}).unbind(1);
}

LayerBuffers::LayerBuffers(const DecoderWeights& weights, const TargetConfig& config, int64_t rows) {
  const auto options = at::TensorOptions(weights.output.dtype()).device(weights.output.device());
  query = at::empty({rows, config.heads, config.head_dim}, options.dtype(at::kFloat));
  attention_output = at::empty({rows, config.query_width()}, options);
  if (weights.post_attention_norm.defined()) mlp_hidden = at::empty({rows, config.intermediate}, options);
}

namespace {

/// The part of a layer after queries, keys and values: attention, output projection and MLP.  `x` as in
/// decoder_layer.
void attention_output_and_mlp(const DecoderWeights& weights, const TargetConfig& config,
                              const kernels::AttentionRows& rows, const at::Tensor& keys,
                              const at::Tensor& values, LayerBuffers& buffers, at::Tensor& x) {
  kernels::tree_attention(buffers.query, keys, values, rows,
                          1.0 / std::sqrt(static_cast<double>(config.head_dim)), buffers.attention_output);
  kernels::linear(buffers.attention_output, weights.output, {}, x, /*accumulate=*/true);

  if (!weights.post_attention_norm.defined()) return;
  kernels::linear_silu_mul({x, weights.post_attention_norm, config.norm_eps}, weights.gate_up,
                           buffers.mlp_hidden);
  kernels::linear(buffers.mlp_hidden, weights.down, {}, x, /*accumulate=*/true);
}

/// The attention inputs of the rows `selected`, i64 [W], on the CPU.
kernels::AttentionRows select_rows(const kernels::AttentionRows& all, const at::Tensor& selected) {
  const int32_t* begin = all.path_begin.const_data_ptr<int32_t>();
  const int32_t* path = all.path.const_data_ptr<int32_t>();
  const int64_t* row = selected.const_data_ptr<int64_t>();
  std::vector<int32_t> new_begin{0}, new_path;
  for (int64_t i = 0; i < selected.size(0); ++i) {
    new_path.insert(new_path.end(), path + begin[row[i]], path + begin[row[i] + 1]);
    new_begin.push_back(static_cast<int32_t>(new_path.size()));
  }
  return {all.sequence.index_select(0, selected), all.contiguous.index_select(0, selected),
          at::tensor(new_begin, at::kInt), at::tensor(new_path, at::kInt), all.page_table};
}

}  // namespace

void decoder_layer(const DecoderWeights& weights, const TargetConfig& config, const Placement& placement,
                   KvCache& cache, int64_t layer, LayerBuffers& buffers, at::Tensor& x) {
  decoder_layer(weights, config, {x, weights.input_norm, config.norm_eps}, placement, cache, layer, buffers,
                x);
}

void decoder_layer(const DecoderWeights& weights, const TargetConfig& config,
                   const kernels::LinearInput& input, const Placement& placement, KvCache& cache,
                   int64_t layer, LayerBuffers& buffers, at::Tensor& x) {
  at::Tensor keys = cache.keys(layer), values = cache.values(layer);
  kernels::linear_rope_and_store(input, weights.qkv, placement.cos, placement.sin, placement.slots,
                                 buffers.query, keys, values);
  attention_output_and_mlp(weights, config, placement.rows, keys, values, buffers, x);
}

void decoder_layer_selected_rows(const DecoderWeights& weights, const TargetConfig& config,
                                 const Placement& placement, KvCache& cache, int64_t layer,
                                 const at::Tensor& rows, LayerBuffers& buffers, at::Tensor& x) {
  at::Tensor keys = cache.keys(layer), values = cache.values(layer);
  kernels::linear_rope_and_store({x, weights.input_norm, config.norm_eps}, weights.qkv, placement.cos,
                                 placement.sin, placement.slots, buffers.query, keys, values);
  x = x.index_select(0, rows);
  if (rows.size(0) == 0) return;
  LayerBuffers selected(weights, config, rows.size(0));
  selected.query = buffers.query.index_select(0, rows);
  attention_output_and_mlp(weights, config, select_rows(placement.rows, rows), keys, values, selected, x);
}

}  // namespace clover::model
