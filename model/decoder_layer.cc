#include "model/decoder_layer.h"

#include <ATen/ops/empty.h>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"

#include <cmath>

namespace clover::model {

void decoder_layer(const DecoderWeights& weights, const TargetConfig& config, const Placement& placement,
                   KvCache& cache, int64_t layer, at::Tensor& x) {
  const int64_t rows = x.size(0);
  const at::ScalarType dtype = weights.qkv.dtype();
  const at::TensorOptions options = x.options();  // fp32
  at::Tensor keys = cache.keys(layer), values = cache.values(layer);

  at::Tensor normed = at::empty({rows, config.hidden}, options.dtype(dtype));
  kernels::rms_norm(x, weights.input_norm, config.norm_eps, normed);
  at::Tensor qkv = at::empty({rows, weights.qkv.outputs()}, options);
  kernels::linear(normed, weights.qkv, {}, qkv);
  at::Tensor query = at::empty({rows, config.heads, config.head_dim}, options);
  kernels::rope_and_store(qkv, placement.cos, placement.sin, placement.slots, query, keys, values);
  at::Tensor mixed = at::empty({rows, config.query_width()}, options.dtype(dtype));
  kernels::tree_attention(query, keys, values, placement.rows,
                          1.0 / std::sqrt(static_cast<double>(config.head_dim)), mixed);
  kernels::linear(mixed, weights.output, {}, x, /*accumulate=*/true);

  if (!weights.post_attention_norm.defined()) return;
  kernels::rms_norm(x, weights.post_attention_norm, config.norm_eps, normed);
  at::Tensor gate_up = at::empty({rows, 2 * config.intermediate}, options);
  kernels::linear(normed, weights.gate_up, {}, gate_up);
  at::Tensor inner = at::empty({rows, config.intermediate}, options.dtype(dtype));
  kernels::silu_mul(gate_up, inner);
  kernels::linear(inner, weights.down, {}, x, /*accumulate=*/true);
}

}  // namespace clover::model
