#include "model/decoder_layer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"

namespace clover::model {
namespace {

/// Rows i and i + d/2 of each head's d become rows 2i and 2i + 1, and back.
at::Tensor halves_in_turn(const at::Tensor& heads, int64_t d) {
  return heads.view({-1, 2, d / 2, heads.size(1)}).transpose(1, 2).reshape(heads.sizes());
}
at::Tensor halves_apart(const at::Tensor& heads, int64_t d) {
  return heads.view({-1, d / 2, 2, heads.size(1)}).transpose(1, 2).reshape(heads.sizes());
}

}  // namespace

kernels::PackedWeight pack_qkv(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const TargetConfig& config) {
  const int64_t d = config.head_dim;
  return kernels::PackedWeight::pack({halves_in_turn(q, d), halves_in_turn(k, d), v});
}

std::vector<at::Tensor> unpack_qkv(const kernels::PackedWeight& qkv, const TargetConfig& config) {
  const int64_t d = config.head_dim;
  const auto parts =
      qkv.unpack().split_with_sizes({config.query_width(), config.kv_width(), config.kv_width()}, 0);
  return {halves_apart(parts[0], d), halves_apart(parts[1], d), parts[2]};
}

kernels::PackedWeight pack_gate_up(const at::Tensor& gate, const at::Tensor& up) {
  return kernels::PackedWeight::pack({at::stack({gate, up}, 1).view({-1, gate.size(1)})});
}

std::vector<at::Tensor> unpack_gate_up(const kernels::PackedWeight& gate_up) {
  return gate_up.unpack().view({-1, 2, gate_up.inputs()}).unbind(1);
}

void decoder_layer(const DecoderWeights& weights, const TargetConfig& config, const Placement& placement,
                   KvCache& cache, int64_t layer, at::Tensor& x) {
  const int64_t rows = x.size(0);
  const at::ScalarType dtype = weights.qkv.dtype();
  const at::TensorOptions options = x.options();  // fp32
  at::Tensor keys = cache.keys(layer), values = cache.values(layer);

  at::Tensor normed = at::empty({rows, config.hidden}, options.dtype(dtype));
  kernels::rms_norm(x, weights.input_norm, config.norm_eps, normed);
  at::Tensor query = at::empty({rows, config.heads, config.head_dim}, options);
  kernels::linear_rope_and_store(normed, weights.qkv, placement.cos, placement.sin, placement.slots, query,
                                 keys, values);
  at::Tensor mixed = at::empty({rows, config.query_width()}, options.dtype(dtype));
  kernels::tree_attention(query, keys, values, placement.rows,
                          1.0 / std::sqrt(static_cast<double>(config.head_dim)), mixed);
  kernels::linear(mixed, weights.output, {}, x, /*accumulate=*/true);

  if (!weights.post_attention_norm.defined()) return;
  kernels::rms_norm(x, weights.post_attention_norm, config.norm_eps, normed);
  at::Tensor inner = at::empty({rows, config.intermediate}, options.dtype(dtype));
  kernels::linear_silu_mul(normed, weights.gate_up, inner);
  kernels::linear(inner, weights.down, {}, x, /*accumulate=*/true);
}

}  // namespace clover::model
