#include "model/drafters/decoder_block.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <optional>

#include "kernels/gpu/gpu.h"
#include "model/drafters/factory.h"

namespace clover::model {
namespace {

/// Rotates [R, heads, d] by the angles of each row's position; cos and sin are fp32 [R, 1, d/2].
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

/// Positions i64 [R], on the device, of rows whose segments each begin at 0.
at::Tensor positions_of(std::span<const Segment> segments, at::Device device) {
  std::vector<at::Tensor> parts;
  for (const Segment& segment : segments) parts.push_back(at::arange(segment.count, at::kLong));
  return kernels::to_device(at::cat(parts), device);
}

/// The first `size` rows of a matrix; where it has fewer, the missing ones are drawn at random or, without
/// `generator`, zeros.
at::Tensor first_rows(const at::Tensor& matrix, int64_t size, std::optional<at::Generator> generator = {}) {
  const int64_t missing = size - matrix.size(0), width = matrix.size(1);
  if (missing <= 0) return matrix.slice(0, 0, size);
  const double spread = generator ? 1 / std::sqrt(static_cast<double>(width)) : 0;
  const at::Tensor missing_rows = at::normal(0.0, spread, {missing, width}, generator);
  return at::cat({matrix, missing_rows.to(matrix.scalar_type())});
}

}  // namespace

OwnLayerConfig::OwnLayerConfig(const TargetConfig& target, const std::string& kind,
                               const nlohmann::json& settings, bool writes_guesses)
    : config(target) {
  const auto theta = settings.at("rope_theta").get<double>();
  rotates_as_target = theta == 0 && !(writes_guesses && target.rope.depends_on_length());
  if (!rotates_as_target) {
    if (theta != 0 && theta < 1) refuse_setting(kind, "rope_theta", theta, "0, or a number from 1");
    config.rope = Rope{};
    config.rope.theta = theta != 0 ? theta : target.rope.theta;
  }
  if (const auto width = settings.value("mlp_width", int64_t{0}); width > 0) config.intermediate = width;
  if (const auto eps = settings.value("norm_eps", 0.0); eps > 0) config.norm_eps = eps;
}

Setting rope_theta_setting() {
  return Setting::number("rope_theta", 0, 0, 1e12,
                         "base of the rotary positions in the heads' own layers; 0: as in the target's");
}

Setting mlp_width_setting() {
  return Setting::integer("mlp_width", 0, 0, 1 << 20,
                          "width of the MLP in the heads' own layer; 0: the target's");
}

Setting norm_eps_setting() {
  return Setting::number("norm_eps", 0, 0, 1e-2,
                         "added to the mean square in the heads' own norms; 0: the target's");
}

DecoderBlock::DecoderBlock(const TargetConfig& config, const DecoderWeights& initial, const BlockForm& form)
    : config_(&config) {
  const auto linear = [this](const char* name, const at::Tensor& targets, const at::Tensor& bias = {},
                             int64_t extra_inputs = 0) {
    auto module =
        register_module(name, std::make_shared<Linear>(targets.size(0), extra_inputs + targets.size(1),
                                                       bias.defined(), root_mean_square(targets)));
    at::NoGradGuard no_grad;
    module->weight.narrow(1, extra_inputs, targets.size(1)).copy_(targets);
    if (bias.defined()) module->bias.copy_(bias);
    return module;
  };
  const auto norm = [&](const char* name, const at::Tensor& weight) {
    return register_module(name, std::make_shared<RmsNorm>(weight, config.norm_eps));
  };
  const int64_t extra_inputs = form.input_width > 0 ? form.input_width - config.hidden : 0;
  Projections projections = unpack_qkv(initial.qkv, config);
  if (form.drop_biases_and_head_norms)
    projections = {.q = projections.q, .k = projections.k, .v = projections.v};
  if (form.input_scale.defined()) {
    for (at::Tensor* weight : {&projections.q, &projections.k, &projections.v})
      *weight = (weight->to(at::kFloat) * form.input_scale).to(weight->scalar_type());
  }
  if (form.input_norm) input_layernorm_ = norm("input_layernorm", initial.input_norm);
  q_proj_ = linear("q_proj", projections.q, projections.q_bias, extra_inputs);
  k_proj_ = linear("k_proj", projections.k, projections.k_bias, extra_inputs);
  v_proj_ = linear("v_proj", projections.v, projections.v_bias, extra_inputs);
  if (projections.q_norm.defined()) {
    q_norm_ = norm("q_norm", projections.q_norm);
    k_norm_ = norm("k_norm", projections.k_norm);
  }
  const auto output = [&](const char* name, const at::Tensor& weight) {
    auto module = linear(name, weight);
    at::NoGradGuard no_grad;
    if (form.zero_outputs) module->weight.zero_();
    return module;
  };
  o_proj_ = output("o_proj", initial.output.unpack());
  if (!form.mlp) return;
  const auto gate_up = unpack_gate_up(initial.gate_up);
  post_attention_layernorm_ = norm("post_attention_layernorm", initial.post_attention_norm);
  at::Generator generator = at::detail::createCPUGenerator(/*seed=*/0);
  gate_proj_ = linear("gate_proj", first_rows(gate_up[0], config.intermediate, generator));
  up_proj_ = linear("up_proj", first_rows(gate_up[1], config.intermediate, generator));
  down_proj_ = output("down_proj", first_rows(initial.down.unpack().t(), config.intermediate).t());
}

void DecoderBlock::pack(at::ScalarType dtype) {
  const at::Device device = q_proj_->weight.device();
  if (input_layernorm_) packed_.input_norm = rounded_vector(input_layernorm_->weight, dtype);
  const auto rounded = [dtype](const at::Tensor& vector) {
    return vector.defined() ? rounded_vector(vector, dtype).cpu() : at::Tensor();
  };
  Projections projections{
      .q = q_proj_->rounded(dtype), .k = k_proj_->rounded(dtype), .v = v_proj_->rounded(dtype)};
  projections.q_bias = rounded(q_proj_->bias), projections.k_bias = rounded(k_proj_->bias),
  projections.v_bias = rounded(v_proj_->bias);
  if (q_norm_) projections.q_norm = rounded(q_norm_->weight), projections.k_norm = rounded(k_norm_->weight);
  packed_.qkv = pack_qkv(projections, *config_, device);
  packed_.output = kernels::PackedWeight::pack({o_proj_->rounded(dtype)}).to(device);
  if (!post_attention_layernorm_) return;
  packed_.post_attention_norm = rounded_vector(post_attention_layernorm_->weight, dtype);
  packed_.gate_up = pack_gate_up(gate_proj_->rounded(dtype), up_proj_->rounded(dtype)).to(device);
  packed_.down = kernels::PackedWeight::pack({down_proj_->rounded(dtype)}).to(device);
}

void DecoderBlock::forward_in_place(at::Tensor& x, const Placement& placement, KvCache& cache,
                                    int64_t layer) const {
  LayerBuffers buffers(packed_, *config_, x.size(0));
  decoder_layer(packed_, *config_, placement, cache, layer, buffers, x);
}

void DecoderBlock::forward_in_place(at::Tensor& x, const at::Tensor& input, const Placement& placement,
                                    KvCache& cache, int64_t layer) const {
  LayerBuffers buffers(packed_, *config_, x.size(0));
  decoder_layer(packed_, *config_, input, placement, cache, layer, buffers, x);
}

at::Tensor DecoderBlock::attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                std::span<const Segment> segments, const at::Tensor& frontier) const {
  std::vector<at::Tensor> outputs;
  const at::Tensor on_host = frontier.cpu();
  const int64_t* rows = on_host.const_data_ptr<int64_t>();
  int64_t begin = 0, first = 0;
  for (const Segment& segment : segments) {
    int64_t last = first;
    while (last < frontier.size(0) && rows[last] < begin + segment.count) ++last;
    if (last > first) {
      // The segment has T rows, and F' of them are in the frontier.  [rows, heads, d] -> [1, heads, rows, d]:
      const auto batch = [](const at::Tensor& part) { return part.transpose(0, 1).unsqueeze(0); };
      const at::Tensor positions = frontier.slice(0, first, last) - begin;  // [F'] within the segment
      const at::Tensor mask =
          positions.unsqueeze(1) >= at::arange(segment.count, positions.options()).unsqueeze(0);  // [F', T]
      const at::Tensor attention = at::scaled_dot_product_attention(
          batch(query.slice(0, first, last)), repeat_kv(batch(key.slice(0, begin, begin + segment.count))),
          repeat_kv(batch(value.slice(0, begin, begin + segment.count))), mask);
      outputs.push_back(attention.squeeze(0).transpose(0, 1).reshape({last - first, config_->query_width()}));
    }
    first = last;
    begin += segment.count;
  }
  return at::cat(outputs);
}

at::Tensor DecoderBlock::angles(std::span<const Segment> segments, at::Device device) const {
  const Rope& rope = config_->rope;
  const at::Tensor frequencies =
      kernels::to_device(at::tensor(rope_frequencies(*config_), at::kDouble), device);
  at::Tensor angles = positions_of(segments, device).to(at::kDouble).unsqueeze(1) * frequencies;
  if (!rope.depends_on_length()) return angles;
  int64_t row = 0;
  for (const Segment& segment : segments) {
    for (int64_t position = 0; position < segment.count; ++position, ++row) {
      if (static_cast<double>(position + 1) <= rope.pretraining_context) continue;
      const auto long_text_frequencies = rope.frequencies(config_->head_dim, position + 1);
      angles[row].copy_(at::tensor(long_text_frequencies, at::kDouble) * static_cast<double>(position));
    }
  }
  return angles;
}

RotationFactors rotation_factors(const TargetConfig& config, const at::Tensor& angles) {
  const double scale = config.rope.attention_factor;
  return {(scale * angles.cos()).to(at::kFloat), (scale * angles.sin()).to(at::kFloat)};
}

at::Tensor DecoderBlock::project_heads(const at::Tensor& input, const Linear& projection, const RmsNorm* norm,
                                       at::ScalarType training_dtype) const {
  const at::Tensor heads =
      projection.forward(input, training_dtype).view({input.size(0), -1, config_->head_dim});
  return norm != nullptr ? norm->forward(heads) : heads;
}

DecoderBlock::Projected DecoderBlock::project(const at::Tensor& input, const at::Tensor& angles,
                                              const at::Tensor& frontier,
                                              at::ScalarType training_dtype) const {
  const RotationFactors factors = rotation_factors(*config_, angles);
  const at::Tensor cos = factors.cos.unsqueeze(1), sin = factors.sin.unsqueeze(1);
  const auto at_frontier = [&](const at::Tensor& rows) {
    return frontier.defined() ? rows.index_select(0, frontier) : rows;
  };
  return {rotate(project_heads(at_frontier(input), *q_proj_, q_norm_.get(), training_dtype), at_frontier(cos),
                 at_frontier(sin)),
          rotate(project_heads(input, *k_proj_, k_norm_.get(), training_dtype), cos, sin),
          project_heads(input, *v_proj_, nullptr, training_dtype)};
}

at::Tensor DecoderBlock::project_output_and_mlp(const at::Tensor& x, const at::Tensor& attention,
                                                at::ScalarType training_dtype) const {
  at::Tensor y = x + o_proj_->forward(attention, training_dtype);
  if (!post_attention_layernorm_) return y;
  const at::Tensor mlp_input = post_attention_layernorm_->forward(y);
  const at::Tensor mlp_hidden =
      at::silu(gate_proj_->forward(mlp_input, training_dtype)) * up_proj_->forward(mlp_input, training_dtype);
  return y + down_proj_->forward(mlp_hidden, training_dtype);
}

at::Tensor DecoderBlock::forward(const at::Tensor& x, std::span<const Segment> segments,
                                 const at::Tensor& frontier, at::ScalarType training_dtype) const {
  const Projected projected =
      project(input_layernorm_->forward(x), angles(segments, x.device()), frontier, training_dtype);
  return project_output_and_mlp(x.index_select(0, frontier),
                                attend(projected.query, projected.key, projected.value, segments, frontier),
                                training_dtype);
}

}  // namespace clover::model
