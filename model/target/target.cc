#include "model/target/target.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "data/files/error.h"
#include "data/files/hash.h"
#include "kernels/attention/attention.h"
#include "kernels/gpu/gpu.h"
#include "kernels/linear/linear.h"
#include "kernels/rows/rms_norm.h"
#include "model/target/weight_source.h"

namespace clover::model {
namespace {

using data::InputError;

kernels::QkvWeight load_qkv(WeightSource& source, const TargetConfig& config, const std::string& prefix) {
  const int64_t query = config.query_width(), kv = config.kv_width();
  Projections projections;
  projections.q = source.matrix(prefix + "q_proj.weight", query, config.hidden);
  projections.k = source.matrix(prefix + "k_proj.weight", kv, config.hidden);
  projections.v = source.matrix(prefix + "v_proj.weight", kv, config.hidden);
  if (config.qkv_bias) {
    projections.q_bias = source.vector(prefix + "q_proj.bias", query);
    projections.k_bias = source.vector(prefix + "k_proj.bias", kv);
    projections.v_bias = source.vector(prefix + "v_proj.bias", kv);
  }
  if (config.head_norms) {
    projections.q_norm = source.vector(prefix + "q_norm.weight", config.head_dim);
    projections.k_norm = source.vector(prefix + "k_norm.weight", config.head_dim);
  }
  return pack_qkv(projections, config, source.device());
}

DecoderWeights load_layer(WeightSource& source, const TargetConfig& config, int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  DecoderWeights weights;
  weights.input_norm = source.vector(prefix + "input_layernorm.weight", config.hidden);
  weights.qkv = load_qkv(source, config, prefix + "self_attn.");
  weights.output =
      source.pack(source.matrix(prefix + "self_attn.o_proj.weight", config.hidden, config.query_width()));
  weights.post_attention_norm = source.vector(prefix + "post_attention_layernorm.weight", config.hidden);
  const at::Tensor gate = source.matrix(prefix + "mlp.gate_proj.weight", config.intermediate, config.hidden);
  const at::Tensor up = source.matrix(prefix + "mlp.up_proj.weight", config.intermediate, config.hidden);
  weights.gate_up = pack_gate_up(gate, up).to(source.device());
  weights.down =
      source.pack(source.matrix(prefix + "mlp.down_proj.weight", config.hidden, config.intermediate));
  return weights;
}

}  // namespace

int64_t Features::size() const {
  for (const auto member : feature_members)
    if ((this->*member).defined()) return (this->*member).size(0);
  return 0;
}

bool Features::is_same_storage(const Features& other) const {
  return std::ranges::all_of(feature_members,
                             [&](auto member) { return (this->*member).is_same(other.*member); });
}

Features Features::rows(const at::Tensor& index) const {
  Features selected;
  at::Tensor device_index = index;
  for (const auto member : feature_members) {
    const at::Tensor& tapped = this->*member;
    if (!tapped.defined()) continue;
    if (device_index.device() != tapped.device())
      device_index = kernels::to_device(device_index, tapped.device());
    selected.*member = tapped.index_select(0, device_index);
  }
  return selected;
}

Features Features::slice(int64_t begin, int64_t end) const {
  Features part;
  for (const auto member : feature_members)
    if ((this->*member).defined()) part.*member = (this->*member).slice(0, begin, end);
  return part;
}

Features Features::concatenated(std::span<const Features> parts) {
  TORCH_CHECK(!parts.empty(), "Features: nothing to concatenate");
  if (parts.size() == 1) return parts[0];
  Features concatenated;
  for (const auto member : feature_members) {
    if (!(parts[0].*member).defined()) continue;
    std::vector<at::Tensor> tensors;
    for (const Features& part : parts) tensors.push_back(part.*member);
    concatenated.*member = at::cat(tensors);
  }
  return concatenated;
}

Features Features::only(const FeatureTaps& taps) const {
  return {taps.pre_norm ? pre_norm : at::Tensor(), taps.post_norm ? post_norm : at::Tensor(),
          taps.layers.empty() ? at::Tensor() : layers};
}

TargetOutput TargetOutput::slice(int64_t begin, int64_t end) const {
  TargetOutput part{{}, features.slice(begin, end)};
  if (logits.defined()) part.logits = logits.slice(0, begin, end);
  if (arg_max.defined()) part.arg_max = arg_max.slice(0, begin, end);
  return part;
}

void Target::load_weights(WeightSource& source) {
  const at::Tensor embedding = source.matrix(embedding_name, config_.vocab, config_.hidden);
  if (config_.tied_head) {
    head_ = source.pack(embedding);
  } else {
    embedding_ = source.pack(embedding);
    head_ = source.pack(source.matrix(lm_head_name, config_.vocab, config_.hidden));
  }
  for (int64_t layer = 0; layer < config_.layers; ++layer)
    layers_.push_back(load_layer(source, config_, layer));
  final_norm_ = source.vector("model.norm.weight", config_.hidden);
}

std::unique_ptr<Target> Target::load(const std::filesystem::path& folder, at::ScalarType dtype,
                                     at::Device device) {
  auto target = std::make_unique<Target>();
  target->config_ = TargetConfig::read(folder);
  target->dtype_ = dtype;
  FolderWeights source(folder, dtype, device);
  TargetConfig& config = target->config_;
  source.resolve_tied_head(config);
  target->load_weights(source);
  source.check_all_read(config.family);
  target->sampled_fingerprint_ = source.fingerprint().sampled_values();
  target->fingerprint_ =
      source.fingerprint().all_values() + "-" + data::hex(data::xxh64(config.network_settings().dump(), 0));
  for (const std::string& note : config.notes) std::fprintf(stderr, "%s\n", note.c_str());
  return target;
}

void Target::set_context(int64_t tokens) {
  if (config_.window > 0 && tokens > config_.window) {
    throw InputError("--max-context " + std::to_string(tokens) + ": expected at most " +
                     std::to_string(config_.window) + " tokens, the window of the model's attention.");
  }
  if (tokens > config_.context) {
    std::fprintf(
        stderr,
        "--max-context %lld: the model's config.json allows %lld tokens; it was not made for longer texts\n",
        static_cast<long long>(tokens), static_cast<long long>(config_.context));
  }
  config_.context = tokens;
}

std::string Target::difference_from(const std::string& recorded) const {
  if (recorded == fingerprint_ || recorded == sampled_fingerprint_) return "";
  const std::string weights_part = fingerprint_.substr(0, fingerprint_.find('-') + 1);
  return recorded.starts_with(weights_part) && recorded.size() == fingerprint_.size()
             ? "the same weights with another config.json (positions, norms or heads)"
             : "other weights";
}

std::unique_ptr<Target> Target::random(const TargetConfig& config, at::ScalarType dtype, at::Device device) {
  auto target = std::make_unique<Target>();
  target->config_ = config;
  target->dtype_ = dtype;
  RandomWeights source(dtype, device);
  target->load_weights(source);
  target->fingerprint_ = "random";
  return target;
}

PassInputs Target::inputs(const RowBatch& batch, KvCache& cache) const {
  PassInputs inputs;
  inputs.ids = at::tensor(batch.ids, at::kLong);
  inputs.placement = cache.place(batch);
  inputs.arg_max_only = batch.arg_max_only;
  if (std::ssize(batch.wanted_rows) != batch.size())
    inputs.wanted_rows = at::tensor(batch.wanted_rows, at::kLong);
  return inputs;
}

TargetOutput Target::forward(const RowBatch& batch, KvCache& cache, const FeatureTaps& taps) const {
  const at::NoGradGuard no_grad;
  return pass(to_device(inputs(batch, cache), device()), cache, taps);
}

bool Target::needs_only_wanted_rows(const PassInputs& inputs, const FeatureTaps& taps) const {
  const bool last_is_tapped = !taps.layers.empty() && taps.layers.back() == config_.layers;
  return device().is_cpu() && inputs.wanted_rows.defined() && !taps.pre_norm && !taps.post_norm &&
         !last_is_tapped;
}

TargetOutput Target::pass(const PassInputs& inputs, KvCache& cache, const FeatureTaps& taps) const {
  at::Tensor x = (config_.tied_head ? head_ : embedding_).rows(inputs.ids).to(at::kFloat);
  Placement placement = inputs.placement;
  placement.rows.plan = kernels::plan_attention(placement.rows, config_.heads, cache.keys(0));
  TargetOutput output;
  const int64_t width = config_.hidden, tapped = std::ssize(taps.layers);
  at::Tensor& tapped_layers = output.features.layers;  // [R, tapped * H]
  if (tapped > 0) tapped_layers = at::empty({x.size(0), tapped * width}, x.options().dtype(dtype_));
  int64_t tap = 0;  // index in taps.layers of the next one to copy
  const bool only_wanted_rows = needs_only_wanted_rows(inputs, taps);
  {
    LayerBuffers buffers(layers_[0], config_, x.size(0));
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      if (only_wanted_rows && layer + 1 == config_.layers)
        decoder_layer_selected_rows(layers_[layer], config_, placement, cache, layer, inputs.wanted_rows,
                                    buffers, x);
      else
        decoder_layer(layers_[layer], config_, placement, cache, layer, buffers, x);
      if (tap < tapped && taps.layers[tap] == layer + 1)
        tapped_layers.narrow(1, tap++ * width, width).copy_(x);
    }
  }  // frees the layers' buffers before the logits are computed
  TORCH_CHECK(tap == tapped, "Target: tapped layers do not ascend from 1 to at most ", config_.layers, ".");
  if (taps.pre_norm) output.features.pre_norm = x.to(dtype_, /*non_blocking=*/false, /*copy=*/true);
  const bool no_logits = inputs.wanted_rows.defined() && inputs.wanted_rows.size(0) == 0;
  if (!taps.post_norm && no_logits) return output;
  kernels::LinearInput head_input(x, final_norm_, config_.norm_eps);
  if (taps.post_norm) {
    at::Tensor normed = at::empty({x.size(0), config_.hidden}, x.options().dtype(dtype_));
    kernels::rms_norm(x, final_norm_, config_.norm_eps, normed);
    output.features.post_norm = normed;
    head_input = normed;
  }
  if (no_logits) return output;
  if (inputs.wanted_rows.defined() && !only_wanted_rows)
    head_input.x = head_input.x.index_select(0, inputs.wanted_rows);
  if (inputs.arg_max_only) {
    output.arg_max = kernels::linear_arg_max(head_input, head_);
    return output;
  }
  output.logits = at::empty({head_input.x.size(0), config_.vocab}, x.options());
  kernels::linear(head_input, head_, {}, output.logits);
  return output;
}

TargetView Target::view() const {
  return {&config_, &head_, config_.tied_head ? &head_ : &embedding_, &final_norm_, &layers_.back(), dtype_};
}

int64_t Target::weight_bytes() const {
  int64_t bytes = head_.bytes();
  for (const DecoderWeights& layer : layers_) {
    bytes += layer.qkv.matrix.bytes() + layer.output.bytes() + layer.gate_up.bytes() + layer.down.bytes();
  }
  return bytes;
}

KvShape Target::kv_shape(int64_t drafter_layers) const {
  const Rotation rotation = config_.rope.rotation(config_.head_dim);
  return {config_.layers + drafter_layers,
          config_.kv_heads,
          config_.head_dim,
          dtype_,
          rotation.frequencies,
          device(),
          rotation.scale,
          rotation.frequencies_at,
          rotation.fixed_rotation_length};
}

}  // namespace clover::model
