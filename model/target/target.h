#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/weights/packed_weight.h"
#include "model/cache/kv_cache.h"
#include "model/cache/row_batch.h"
#include "model/target/decoder_layer.h"
#include "model/target/target_config.h"

namespace clover::model {

/// Which hidden states of the target a drafter reads; they are captured at every row of a pass.
struct FeatureTaps {
  bool pre_norm = false;          // u: the residual stream after the last layer
  bool post_norm = false;         // h: the final norm of u, which is the input of the LM head
  std::vector<int64_t> layers{};  // the residual stream after each of these layers: numbers from 1, ascending

  auto operator<=>(const FeatureTaps&) const = default;
};

/// Captured hidden states of R rows, [R, H] in the model's dtype; undefined when not tapped.
struct Features {
  at::Tensor pre_norm;
  at::Tensor post_norm;
  at::Tensor layers{};  // [R, n H]: the n tapped layers side by side

  Features rows(const at::Tensor& index /* i64 [R'] on the CPU or beside them */) const;
  Features slice(int64_t begin, int64_t end) const;               // views
  int64_t size() const;                                           // R, 0 when nothing is tapped
  bool is_same_storage(const Features& other) const;              // whether both have the very same tensors
  static Features concatenated(std::span<const Features> parts);  // one or more parts with the same taps
};

/// The members of Features, for loops over them.
inline constexpr std::array feature_members{&Features::pre_norm, &Features::post_norm, &Features::layers};

/// What drafters use of the target without owning it.
struct TargetView {
  const TargetConfig* config;
  const kernels::PackedWeight* head;       // LM head [V, H]
  const kernels::PackedWeight* embedding;  // of input tokens [V, H]; the head itself where they are tied
  const at::Tensor* final_norm;            // fp32 [H]
  const DecoderWeights* last_layer;
  at::ScalarType dtype;
};

/// The result of a forward pass; W of its rows are wanted (RowBatch).
struct TargetOutput {
  at::Tensor logits;     // fp32 [W, V] of the wanted rows; undefined without any
  Features features;     // of all rows
  at::Tensor best = {};  // i64 [W]: arg max of the logits, where the batch asks for nothing else

  TargetOutput slice(int64_t begin, int64_t end) const;  // views; only when all rows are wanted
};

/// A frozen decoder-only language model.
class Target {
 public:
  /// Loads a Hugging Face folder.  InputError when a tensor is missing, mis-shaped, or unknown to the
  /// architecture (weight_source.h).
  static std::unique_ptr<Target> load(const std::filesystem::path& folder, at::ScalarType dtype,
                                      at::Device device = at::kCPU);

  /// A model of that shape with random weights, for measurements.
  static std::unique_ptr<Target> random(const TargetConfig& config, at::ScalarType dtype,
                                        at::Device device = at::kCPU);

  /// One pass over `batch`, without autograd.  Keys and values are written to `cache`, layers 0 ..
  /// config.layers-1.
  TargetOutput forward(const RowBatch& batch, KvCache& cache, const FeatureTaps& taps) const;

  /// The two parts of `forward`: `inputs` computes on the CPU what a pass needs besides weights and cache;
  /// `pass` runs it, with all inputs on the device.
  PassInputs inputs(const RowBatch& batch, KvCache& cache) const;
  TargetOutput pass(const PassInputs& inputs, KvCache& cache, const FeatureTaps& taps) const;

  /// Sets the largest number of tokens of a text, whatever config.json says.  InputError when it exceeds a
  /// sliding window; a warning on stderr when it exceeds the context of config.json.
  void set_context(int64_t tokens);

  const TargetConfig& config() const { return config_; }
  at::ScalarType dtype() const { return dtype_; }
  at::Device device() const { return head_.device(); }
  TargetView view() const;
  int64_t weight_bytes() const;  // bytes of weights that one pass reads

  /// Identifies the target: 16 hex digits over all weights (Fingerprint), a dash, and 16 over the settings
  /// that change the network's results (TargetConfig::function).
  const std::string& fingerprint() const { return fingerprint_; }
  /// 16 hex digits over some values of the weights, which is what the oldest files record.
  const std::string& sampled_fingerprint() const { return sampled_fingerprint_; }
  /// How the target of a recorded fingerprint, of either kind, differs from this one: "other weights", ..; ""
  /// if it is this one.
  std::string difference_from(const std::string& recorded) const;

  /// The KV cache layout of this target with `drafter_layers` more layers.
  KvShape kv_shape(int64_t drafter_layers) const;

 private:
  void take_weights(class WeightSource& source);
  /// Whether only the wanted rows of the last layer's output are needed, as in prefill.
  bool reads_only_wanted(const PassInputs& inputs, const FeatureTaps& taps) const;

  TargetConfig config_;
  at::ScalarType dtype_;
  std::string fingerprint_, sampled_fingerprint_;
  kernels::PackedWeight embedding_;  // [V, H]; undefined when tied to the head
  kernels::PackedWeight head_;       // [V, H]
  at::Tensor final_norm_;            // fp32 [H]
  std::vector<DecoderWeights> layers_;
};

}  // namespace clover::model
