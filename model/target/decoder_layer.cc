#include "model/target/decoder_layer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"

namespace clover::model {
namespace {

/// Elements i and i + d/2 of each head's d, along the first dimension, become 2i and 2i + 1; and back.
at::Tensor halves_in_turn(const at::Tensor& heads, int64_t d) {
  return heads.reshape({-1, 2, d / 2, heads.numel() / heads.size(0)}).transpose(1, 2).reshape(heads.sizes());
}
at::Tensor halves_apart(const at::Tensor& heads, int64_t d) {
  return heads.reshape({-1, d / 2, 2, heads.numel() / heads.size(0)}).transpose(1, 2).reshape(heads.sizes());
}

/// Queries, keys and values of a matrix or of its bias.
std::vector<at::Tensor> split_qkv(const at::Tensor& joined, const TargetConfig& config) {
  const int64_t d = config.head_dim;
  const auto parts = joined.split_with_sizes({config.query_width(), config.kv_width(), config.kv_width()}, 0);
  return {halves_apart(parts[0], d), halves_apart(parts[1], d), parts[2]};
}

}  // namespace

kernels::QkvWeight pack_qkv(const Projections& from, const TargetConfig& config, at::Device device) {
  const int64_t d = config.head_dim;
  kernels::QkvWeight qkv;
  qkv.matrix =
      kernels::PackedWeight::pack({halves_in_turn(from.q, d), halves_in_turn(from.k, d), from.v}).to(device);
  if (from.q_bias.defined())
    qkv.bias =
        at::cat({halves_in_turn(from.q_bias, d), halves_in_turn(from.k_bias, d), from.v_bias}).to(device);
  if (from.q_norm.defined()) {
    qkv.query_norm = halves_in_turn(from.q_norm, d).to(device);
    qkv.key_norm = halves_in_turn(from.k_norm, d).to(device);
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
    projections.q_norm = halves_apart(qkv.query_norm.cpu(), config.head_dim);
    projections.k_norm = halves_apart(qkv.key_norm.cpu(), config.head_dim);
  }
  return projections;
}

kernels::PackedWeight pack_gate_up(const at::Tensor& gate, const at::Tensor& up) {
  return kernels::PackedWeight::pack({at::stack({gate, up}, 1).view({-1, gate.size(1)})});
}

std::vector<at::Tensor> unpack_gate_up(const kernels::PackedWeight& gate_up) {
  return gate_up.unpack().view({-1, 2, gate_up.inputs()}).unbind(1);
}

LayerRoom::LayerRoom(const DecoderWeights& weights, const TargetConfig& config, int64_t rows) {
  const auto options = at::TensorOptions(weights.output.dtype()).device(weights.output.device());
  query = at::empty({rows, config.heads, config.head_dim}, options.dtype(at::kFloat));
  mixed = at::empty({rows, config.query_width()}, options);
  if (weights.post_attention_norm.defined()) inner = at::empty({rows, config.intermediate}, options);
}

namespace {

/// What follows a layer's queries, keys and values.
void attend_and_think(const DecoderWeights& weights, const TargetConfig& config,
                      const kernels::AttentionRows& rows, const at::Tensor& keys, const at::Tensor& values,
                      LayerRoom& room, at::Tensor& x) {
  kernels::tree_attention(room.query, keys, values, rows,
                          1.0 / std::sqrt(static_cast<double>(config.head_dim)), room.mixed);
  kernels::linear(room.mixed, weights.output, {}, x, /*accumulate=*/true);

  if (!weights.post_attention_norm.defined()) return;
  kernels::linear_silu_mul({x, weights.post_attention_norm, config.norm_eps}, weights.gate_up, room.inner);
  kernels::linear(room.inner, weights.down, {}, x, /*accumulate=*/true);
}

/// Where `chosen` of the rows, all on the CPU, find their keys.
kernels::AttentionRows rows_of(const kernels::AttentionRows& all, const at::Tensor& chosen) {
  const int32_t* begin = all.path_begin.const_data_ptr<int32_t>();
  const int32_t* path = all.path.const_data_ptr<int32_t>();
  const int64_t* row = chosen.const_data_ptr<int64_t>();
  std::vector<int32_t> own_begin{0}, own_path;
  for (int64_t i = 0; i < chosen.size(0); ++i) {
    own_path.insert(own_path.end(), path + begin[row[i]], path + begin[row[i] + 1]);
    own_begin.push_back(static_cast<int32_t>(own_path.size()));
  }
  return {all.sequence.index_select(0, chosen), all.contiguous.index_select(0, chosen),
          at::tensor(own_begin, at::kInt), at::tensor(own_path, at::kInt), all.page_table};
}

}  // namespace

void decoder_layer(const DecoderWeights& weights, const TargetConfig& config, const Placement& placement,
                   KvCache& cache, int64_t layer, LayerRoom& room, at::Tensor& x) {
  at::Tensor keys = cache.keys(layer), values = cache.values(layer);
  kernels::linear_rope_and_store({x, weights.input_norm, config.norm_eps}, weights.qkv, placement.cos,
                                 placement.sin, placement.slots, room.query, keys, values);
  attend_and_think(weights, config, placement.rows, keys, values, room, x);
}

void decoder_layer_of_rows(const DecoderWeights& weights, const TargetConfig& config,
                           const Placement& placement, KvCache& cache, int64_t layer, const at::Tensor& rows,
                           LayerRoom& room, at::Tensor& x) {
  at::Tensor keys = cache.keys(layer), values = cache.values(layer);
  kernels::linear_rope_and_store({x, weights.input_norm, config.norm_eps}, weights.qkv, placement.cos,
                                 placement.sin, placement.slots, room.query, keys, values);
  x = x.index_select(0, rows);
  if (rows.size(0) == 0) return;
  LayerRoom own(weights, config, rows.size(0));
  own.query = room.query.index_select(0, rows);
  attend_and_think(weights, config, rows_of(placement.rows, rows), keys, values, own, x);
}

}  // namespace clover::model
