#include "model/target.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "data/error.h"
#include "data/hash.h"
#include "data/safetensors.h"
#include "kernels/attention.h"
#include "kernels/gpu.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"

namespace clover::model {
namespace {

using data::InputError;
using data::SafetensorsReader;

/// Hashes shapes and evenly spaced values of tensors, rounded to bf16, so that a fingerprint of gigabytes
/// takes milliseconds and does not depend on the container.
class Fingerprint {
 public:
  void add(const std::string& name, const at::Tensor& tensor) {
    constexpr int64_t samples = 1024;
    state_ = data::fnv1a(name, state_);
    for (const int64_t size : tensor.sizes()) state_ = data::fnv1a("," + std::to_string(size), state_);
    const at::Tensor flat = tensor.reshape({-1});
    const int64_t stride = std::max<int64_t>(1, flat.numel() / samples);
    const at::Tensor values = flat.slice(0, 0, flat.numel(), stride).to(at::kBFloat16).contiguous();
    state_ = data::fnv1a({static_cast<const char*>(values.data_ptr()), static_cast<size_t>(values.nbytes())},
                         state_);
  }
  std::string hex() const { return data::hex(state_); }

 private:
  uint64_t state_ = data::fnv_start;
};

}  // namespace

/// Where the weights of a target come from.
class WeightSource {
 public:
  WeightSource(at::ScalarType dtype, at::Device device) : dtype_(dtype), device_(device) {}
  virtual ~WeightSource() = default;

  at::Tensor matrix(const std::string& name, int64_t outputs, int64_t inputs) {
    return read(name, {outputs, inputs}).to(dtype_).contiguous();
  }
  at::Tensor vector(const std::string& name, int64_t size) {
    return read(name, {size}).to(at::kFloat).contiguous().to(device_);
  }
  kernels::PackedWeight pack(const at::Tensor& matrix) const {
    return kernels::PackedWeight::pack({matrix}).to(device_);
  }
  at::Device device() const { return device_; }

 protected:
  /// A floating-point tensor on the CPU.
  virtual at::Tensor read(const std::string& name, at::IntArrayRef shape) = 0;

 private:
  at::ScalarType dtype_;
  at::Device device_;
};

namespace {

/// Reads tensors by name, remembers which were used and folds them into the fingerprint in the order of
/// reading.
class FolderSource : public WeightSource {
 public:
  FolderSource(const std::filesystem::path& folder, at::ScalarType dtype, at::Device device)
      : WeightSource(dtype, device), folder_(folder), reader_(SafetensorsReader::open(folder)) {}

  /// InputError when the folder holds a tensor that nobody read and that is not known to travel along.
  void finish(const std::string& family, bool tied) const {
    for (const std::string& name : reader_.names()) {
      if (used_.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
      if (tied && name == "lm_head.weight") continue;
      throw InputError(folder_.string() + ": tensor " + name + " is not part of a " + family +
                       " model; the folder and its config.json do not belong together.");
    }
  }
  bool contains(const std::string& name) const { return reader_.contains(name); }
  std::string fingerprint() const { return fingerprint_.hex(); }

 protected:
  at::Tensor read(const std::string& name, at::IntArrayRef shape) override {
    const at::Tensor tensor = reader_.read(name, shape);
    if (!tensor.is_floating_point() || tensor.element_size() < 2) {
      throw InputError(folder_.string() + ": tensor " + name + " is " + c10::toString(tensor.scalar_type()) +
                       ", expected bfloat16, float16 or float32.");
    }
    used_.insert(name);
    fingerprint_.add(name, tensor);
    return tensor;
  }

 private:
  std::filesystem::path folder_;
  SafetensorsReader reader_;
  std::set<std::string> used_;
  Fingerprint fingerprint_;
};

/// Norms of 1, biases of 0, and matrices that keep the size of what they multiply: a cut, somewhere else for
/// each, of one stretch of random numbers, because drawing billions would take minutes.
class RandomSource : public WeightSource {
 public:
  RandomSource(at::ScalarType dtype, at::Device device) : WeightSource(dtype, device) {
    at::Generator generator = at::detail::createCPUGenerator(0);
    drawn_ = at::empty({int64_t{1} << 20}, at::kFloat).uniform_(-1.7, 1.7, generator).to(dtype);
  }

 protected:
  at::Tensor read(const std::string& name, at::IntArrayRef shape) override {
    if (shape.size() == 1) return at::full(shape, name.ends_with(".bias") ? 0 : 1, at::kFloat);
    const at::Tensor scaled = drawn_ / std::sqrt(static_cast<double>(shape[1]));
    at::Tensor matrix = at::empty(shape, drawn_.options());
    const at::Tensor flat = matrix.view({-1});
    for (int64_t done = 0; done < flat.numel();) {
      const int64_t begin = (7919 * ++cuts_) % (drawn_.numel() / 2);
      const int64_t count = std::min(flat.numel() - done, drawn_.numel() - begin);
      flat.narrow(0, done, count).copy_(scaled.narrow(0, begin, count));
      done += count;
    }
    return matrix;
  }

 private:
  at::Tensor drawn_;
  int64_t cuts_ = 0;
};

kernels::QkvWeight load_qkv(WeightSource& source, const TargetConfig& config, const std::string& prefix) {
  const int64_t query = config.query_width(), kv = config.kv_width();
  Projections from;
  from.q = source.matrix(prefix + "q_proj.weight", query, config.hidden);
  from.k = source.matrix(prefix + "k_proj.weight", kv, config.hidden);
  from.v = source.matrix(prefix + "v_proj.weight", kv, config.hidden);
  if (config.qkv_bias) {
    from.q_bias = source.vector(prefix + "q_proj.bias", query);
    from.k_bias = source.vector(prefix + "k_proj.bias", kv);
    from.v_bias = source.vector(prefix + "v_proj.bias", kv);
  }
  if (config.head_norms) {
    from.q_norm = source.vector(prefix + "q_norm.weight", config.head_dim);
    from.k_norm = source.vector(prefix + "k_norm.weight", config.head_dim);
  }
  return pack_qkv(from, config, source.device());
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

bool Features::is_same(const Features& other) const {
  return std::ranges::all_of(feature_members,
                             [&](auto member) { return (this->*member).is_same(other.*member); });
}

Features Features::rows(const at::Tensor& index) const {
  Features picked;
  at::Tensor there = index;
  for (const auto member : feature_members) {
    const at::Tensor& tapped = this->*member;
    if (!tapped.defined()) continue;
    if (there.device() != tapped.device()) there = kernels::to_device(there, tapped.device());
    picked.*member = tapped.index_select(0, there);
  }
  return picked;
}

Features Features::slice(int64_t begin, int64_t end) const {
  Features part;
  for (const auto member : feature_members)
    if ((this->*member).defined()) part.*member = (this->*member).slice(0, begin, end);
  return part;
}

Features Features::joined(std::span<const Features> parts) {
  if (parts.size() == 1) return parts[0];
  Features joined;
  for (const auto member : feature_members) {
    if (!(parts[0].*member).defined()) continue;
    std::vector<at::Tensor> tensors;
    for (const Features& part : parts) tensors.push_back(part.*member);
    joined.*member = at::cat(tensors);
  }
  return joined;
}

TargetOutput TargetOutput::slice(int64_t begin, int64_t end) const {
  TargetOutput part{{}, features.slice(begin, end)};
  if (logits.defined()) part.logits = logits.slice(0, begin, end);
  if (best.defined()) part.best = best.slice(0, begin, end);
  return part;
}

void Target::take_weights(WeightSource& source) {
  const at::Tensor embedding = source.matrix("model.embed_tokens.weight", config_.vocab, config_.hidden);
  if (config_.tied_head) {
    head_ = source.pack(embedding);
  } else {
    embedding_ = source.pack(embedding);
    head_ = source.pack(source.matrix("lm_head.weight", config_.vocab, config_.hidden));
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
  FolderSource source(folder, dtype, device);
  TargetConfig& config = target->config_;
  if (config.tie_unstated) config.tied_head = !source.contains("lm_head.weight");
  target->take_weights(source);
  source.finish(config.family, config.tied_head);
  target->fingerprint_ = source.fingerprint();
  return target;
}

std::unique_ptr<Target> Target::random(const TargetConfig& config, at::ScalarType dtype, at::Device device) {
  auto target = std::make_unique<Target>();
  target->config_ = config;
  target->dtype_ = dtype;
  RandomSource source(dtype, device);
  target->take_weights(source);
  target->fingerprint_ = "random";
  return target;
}

PassInputs Target::inputs(const RowBatch& batch, KvCache& cache) const {
  PassInputs inputs;
  inputs.ids = at::tensor(batch.ids, at::kLong);
  inputs.placement = cache.place(batch);
  inputs.best_only = batch.best_only;
  if (std::ssize(batch.wanted) != batch.size()) inputs.wanted = at::tensor(batch.wanted, at::kLong);
  return inputs;
}

TargetOutput Target::forward(const RowBatch& batch, KvCache& cache, const FeatureTaps& taps) const {
  const at::NoGradGuard no_grad;
  return pass(to_device(inputs(batch, cache), device()), cache, taps);
}

bool Target::reads_only_wanted(const PassInputs& inputs, const FeatureTaps& taps) const {
  const bool last_is_tapped = !taps.layers.empty() && taps.layers.back() == config_.layers;
  return device().is_cpu() && inputs.wanted.defined() && !taps.pre_norm && !taps.post_norm && !last_is_tapped;
}

TargetOutput Target::pass(const PassInputs& inputs, KvCache& cache, const FeatureTaps& taps) const {
  at::Tensor x = (config_.tied_head ? head_ : embedding_).rows(inputs.ids).to(at::kFloat);
  Placement placement = inputs.placement;
  placement.rows.plan = kernels::plan_attention(placement.rows, config_.heads, cache.keys(0));
  TargetOutput output;
  const int64_t width = config_.hidden, tapped = std::ssize(taps.layers);
  at::Tensor& lower = output.features.layers;
  if (tapped > 0) lower = at::empty({x.size(0), tapped * width}, x.options().dtype(dtype_));
  int64_t tap = 0;
  const bool only_wanted = reads_only_wanted(inputs, taps);
  {
    LayerRoom room(layers_[0], config_, x.size(0));
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      if (only_wanted && layer + 1 == config_.layers)
        decoder_layer_of_rows(layers_[layer], config_, placement, cache, layer, inputs.wanted, room, x);
      else
        decoder_layer(layers_[layer], config_, placement, cache, layer, room, x);
      if (tap < tapped && taps.layers[tap] == layer + 1) lower.narrow(1, tap++ * width, width).copy_(x);
    }
  }  // what layers wrote on their way makes room for logits
  TORCH_CHECK(tap == tapped, "Target: tapped layers do not ascend from 1 to at most ", config_.layers, ".");
  if (taps.pre_norm) output.features.pre_norm = x.to(dtype_, /*non_blocking=*/false, /*copy=*/true);
  const bool no_logits = inputs.wanted.defined() && inputs.wanted.size(0) == 0;
  if (!taps.post_norm && no_logits) return output;
  kernels::LinearInput rows(x, final_norm_, config_.norm_eps);
  if (taps.post_norm) {
    at::Tensor normed = at::empty({x.size(0), config_.hidden}, x.options().dtype(dtype_));
    kernels::rms_norm(x, final_norm_, config_.norm_eps, normed);
    output.features.post_norm = normed;
    rows = normed;
  }
  if (no_logits) return output;
  if (inputs.wanted.defined() && !only_wanted) rows.x = rows.x.index_select(0, inputs.wanted);
  if (inputs.best_only) {
    output.best = kernels::linear_arg_max(rows, head_);
    return output;
  }
  output.logits = at::empty({rows.x.size(0), config_.vocab}, x.options());
  kernels::linear(rows, head_, {}, output.logits);
  return output;
}

TargetView Target::view() const {
  return {&config_, &head_, &final_norm_, &layers_.back(), dtype_};
}

int64_t Target::weight_bytes() const {
  int64_t bytes = head_.bytes();
  for (const DecoderWeights& layer : layers_) {
    bytes += layer.qkv.matrix.bytes() + layer.output.bytes() + layer.gate_up.bytes() + layer.down.bytes();
  }
  return bytes;
}

KvShape Target::kv_shape(int64_t drafter_layers) const {
  return {config_.layers + drafter_layers, config_.kv_heads, config_.head_dim, dtype_,
          rope_frequencies(config_),       device()};
}

}  // namespace clover::model
