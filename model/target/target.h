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

/// Which hidden states of the target a drafter reads.  A pass returns them for every row.
struct FeatureTaps {
  bool pre_norm = false;          // u: the residual stream after the last layer
  bool post_norm = false;         // h: the final norm of u, which is the input of the LM head
  std::vector<int64_t> layers{};  // the residual stream after these layers, counted from 1, ascending

  auto operator<=>(const FeatureTaps&) const = default;
};

/// The tapped hidden states of R rows, each [R, H] in the model's dtype or undefined when not tapped.
struct Features {
  at::Tensor pre_norm;
  at::Tensor post_norm;
  at::Tensor layers{};  // [R, n H]: the n tapped layers side by side

  /// A copy of the rows `index`, i64 [R'], which is on the CPU or on the features' device.
  Features rows(const at::Tensor& index) const;
  /// Rows begin .. end - 1, as views.
  Features slice(int64_t begin, int64_t end) const;
  /// R; 0 when nothing is tapped.
  int64_t size() const;
  /// Those that are tapped, and the others undefined.
  Features only(const FeatureTaps& taps) const;
  /// Whether both share the same tensors, not only equal values.
  bool is_same_storage(const Features& other) const;
  /// The rows of one or more parts, in order; all parts have the same taps.
  static Features concatenated(std::span<const Features> parts);
};

/// The members of Features, for loops over them.
inline constexpr std::array feature_members{&Features::pre_norm, &Features::post_norm, &Features::layers};

/// What drafters use of the target without owning it.
struct TargetView {
  const TargetConfig* config;
  const kernels::PackedWeight* head;       // LM head [V, H]
  const kernels::PackedWeight* embedding;  // input embedding [V, H]; equal to `head` if they are tied
  const at::Tensor* final_norm;            // fp32 [H]
  const DecoderWeights* last_layer;        // which drafters' own layers begin as copies of
  at::ScalarType dtype;
};

/// The result of a pass over R rows, W of which are wanted (RowBatch::wanted_rows).
struct TargetOutput {
  at::Tensor logits;  // fp32 [W, V]; undefined if W is 0 or the batch asks for `arg_max`
  Features features;  // of all R rows
  at::Tensor arg_max =
      {};  // i64 [W] tokens of the highest logits, with RowBatch::arg_max_only; else undefined

  /// Rows begin .. end - 1 of all members, as views.  Only when all rows are wanted.
  TargetOutput slice(int64_t begin, int64_t end) const;
};

/// A frozen decoder-only language model.
class Target {
 public:
  /// Loads a Hugging Face folder.  InputError when a tensor is missing, has a wrong shape, or is not part of
  /// the architecture.
  static std::unique_ptr<Target> load(const std::filesystem::path& folder, at::ScalarType dtype,
                                      at::Device device = at::kCPU);

  /// A model of that configuration with random weights, for measurements.
  static std::unique_ptr<Target> random(const TargetConfig& config, at::ScalarType dtype,
                                        at::Device device = at::kCPU);

  /// One pass over `batch`, without autograd.  Keys and values are written to layers 0 .. config().layers - 1
  /// of `cache`.
  TargetOutput forward(const RowBatch& batch, KvCache& cache, const FeatureTaps& taps) const;

  /// The two parts of `forward`.  `inputs` computes, on the CPU, what a pass reads besides weights and cache.
  /// `pass` runs the layers; its inputs are on the target's device.
  PassInputs inputs(const RowBatch& batch, KvCache& cache) const;
  TargetOutput pass(const PassInputs& inputs, KvCache& cache, const FeatureTaps& taps) const;

  /// Replaces the context length of config.json by `tokens`.  InputError when that exceeds the sliding
  /// window; a warning on stderr when it exceeds the length in config.json.
  void set_context(int64_t tokens);

  const TargetConfig& config() const { return config_; }
  at::ScalarType dtype() const { return dtype_; }
  at::Device device() const { return head_.device(); }
  TargetView view() const;
  /// Bytes of weights that one pass reads.
  int64_t weight_bytes() const;

  /// Identifies the target: a hash of all weights (Fingerprint::all_values), a dash, and a hash of
  /// TargetConfig::network_settings; 16 hex digits each.
  const std::string& fingerprint() const { return fingerprint_; }
  /// Fingerprint::sampled_values, by which the oldest files know the target.
  const std::string& sampled_fingerprint() const { return sampled_fingerprint_; }
  /// How this target differs from the one whose fingerprint, of either kind, is `recorded`: a phrase for
  /// messages, such as "other weights", or "" if it is the same.
  std::string difference_from(const std::string& recorded) const;

  /// The layout of a KV cache for this target and, after its layers, `drafter_layers` of a drafter.
  KvShape kv_shape(int64_t drafter_layers) const;

 private:
  void load_weights(class WeightSource& source);
  /// Whether a pass needs only the wanted rows of the last layer's output, as in prefill on a CPU.
  bool needs_only_wanted_rows(const PassInputs& inputs, const FeatureTaps& taps) const;

  TargetConfig config_;
  at::ScalarType dtype_;
  std::string fingerprint_, sampled_fingerprint_;
  kernels::PackedWeight embedding_;  // [V, H]; undefined when tied to the head
  kernels::PackedWeight head_;       // [V, H]
  at::Tensor final_norm_;            // fp32 [H]
  std::vector<DecoderWeights> layers_;
};

}  // namespace clover::model
