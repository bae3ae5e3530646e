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

/// What a drafter reads of the target, captured at every row of a pass.
struct FeatureTaps {
  bool pre_norm = false;          // u: the residual stream after the last layer
  bool post_norm = false;         // h: u through the final norm, what the head reads
  std::vector<int64_t> layers{};  // the residual stream after so many layers: ascending, from 1

  auto operator<=>(const FeatureTaps&) const = default;
};

/// Captured features, [R, H] in the model's dtype, undefined when not tapped.
struct Features {
  at::Tensor pre_norm;
  at::Tensor post_norm;
  at::Tensor layers{};  // [R, n H]: those of the n layers side by side

  Features rows(const at::Tensor& index /* i64 [R'] on the CPU or beside them */) const;
  Features slice(int64_t begin, int64_t end) const;         // views
  int64_t size() const;                                     // R, 0 when nothing is tapped
  bool is_same(const Features& other) const;                // not equal: the very same tensors
  static Features joined(std::span<const Features> parts);  // one or more, tapped alike, one after the other
};

/// For what is done to each of them alike.
inline constexpr std::array feature_members{&Features::pre_norm, &Features::post_norm, &Features::layers};

/// What drafters may use of the target without owning it.
struct TargetView {
  const TargetConfig* config;
  const kernels::PackedWeight* head;  // [V, H]
  const at::Tensor* final_norm;       // fp32 [H]
  const DecoderWeights* last_layer;
  at::ScalarType dtype;
};

struct TargetOutput {
  at::Tensor logits;     // fp32 [W, V] of the batch's wanted rows, undefined when none
  Features features;     // of all rows
  at::Tensor best = {};  // i64 [W] arg_max of the logits, where these alone are wanted

  TargetOutput slice(int64_t begin, int64_t end) const;  // views, where logits of all rows are wanted
};

/// A frozen decoder-only language model.
class Target {
 public:
  /// Reads a Hugging Face folder strictly: every tensor the architecture needs, in its shape, and no other
  /// than the names its family is known to carry along.  InputError in one sentence otherwise.
  static std::unique_ptr<Target> load(const std::filesystem::path& folder, at::ScalarType dtype,
                                      at::Device device = at::kCPU);

  /// A model of that shape with weights drawn at random: to measure steps, not to write text.
  static std::unique_ptr<Target> random(const TargetConfig& config, at::ScalarType dtype,
                                        at::Device device = at::kCPU);

  /// One pass over `batch`; keys and values go to `cache` (layers 0 .. config.layers-1).  Runs without
  /// autograd.
  TargetOutput forward(const RowBatch& batch, KvCache& cache, const FeatureTaps& taps) const;

  /// The parts of `forward`: what it needs besides weights and cache, on the CPU, and the pass itself, all of
  /// whose inputs lie on the device.
  PassInputs inputs(const RowBatch& batch, KvCache& cache) const;
  TargetOutput pass(const PassInputs& inputs, KvCache& cache, const FeatureTaps& taps) const;

  /// Texts may have so many tokens from now on, whatever config.json says.  InputError beyond a window of
  /// attention; says on stderr where it is beyond the positions of training.
  void set_context(int64_t tokens);

  const TargetConfig& config() const { return config_; }
  at::ScalarType dtype() const { return dtype_; }
  at::Device device() const { return head_.device(); }
  TargetView view() const;
  int64_t weight_bytes() const;  // what one pass reads at least once

  /// 16 hex digits of all weights in bf16 under canonical names, the same for any sharding or container, a
  /// dash, and 16 of what else the network's results hang on (TargetConfig::function).
  const std::string& fingerprint() const { return fingerprint_; }
  /// 16 hex digits of some of the weights: all that files recorded at first.
  const std::string& sampled_fingerprint() const { return sampled_fingerprint_; }
  /// What the target is whose fingerprint, of either kind, a file records; "" where it is this one.
  std::string difference_from(const std::string& recorded) const;

  /// KvCache layout for this target with `drafter_layers` more layers.
  KvShape kv_shape(int64_t drafter_layers) const;

 private:
  void take_weights(class WeightSource& source);
  /// Whether nothing of the last layer is read but the wanted rows: a prompt has one.
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
