#pragma once

#include <memory>
#include <span>
#include <string>

#include "model/drafters/drafter.h"
#include "model/drafters/layers.h"
#include "model/drafters/module.h"
#include "model/drafters/setting.h"
#include "model/target/decoder_layer.h"

namespace clover::model {

/// The configuration of a drafter's own decoder layers.  It is the target's, except for three settings of the
/// drafter; the value 0 means as in the target.
///   rope_theta  plain RoPE with that base
///   mlp_width   width of the MLP; not all kinds have this setting
///   norm_eps    epsilon of norms; not all kinds have this setting
struct OwnLayerConfig {
  /// `settings`: all those of a drafter of `kind`.  `writes_guesses`: as Drafter::writes_guesses.  Such
  /// drafters use plain RoPE if the target's depends on the length of the text, because the CPU does not know
  /// that length when it launches a draft on a GPU.  InputError for a rope_theta between 0 and 1.
  OwnLayerConfig(const TargetConfig& target, const std::string& kind, const nlohmann::json& settings,
                 bool writes_guesses = false);
  OwnLayerConfig(const OwnLayerConfig&) = delete;  // layers refer to it

  /// The RoPE of the drafter's layers; null: the target's.
  const Rope* own_rope() const { return rotates_as_target ? nullptr : &config.rope; }

  TargetConfig config;
  bool rotates_as_target;  // with the same RoPE
};

/// The declarations of these settings, for the kinds that have them.
Setting rope_theta_setting();
Setting mlp_width_setting();
Setting norm_eps_setting();

/// How a block differs from a decoder layer of the target.
struct BlockForm {
  bool mlp = true;          // false: attention only
  bool input_norm = true;   // false: queries, keys and values read an `input` of their own, without a norm
  int64_t input_width = 0;  // K of that input [R, K]; 0: the hidden size H
  bool drop_biases_and_head_norms =
      false;  // begin without those that the target's queries, keys and values have
  bool zero_outputs =
      false;  // output projection and MLP begin as zeros, so that the block begins by adding nothing
  at::Tensor input_scale = {};  // fp32 [H]: the weights of queries, keys and values begin multiplied by it
                                // along their inputs; undefined: as they are
};

/// What rotary embedding multiplies the halves of queries and keys by, fp32 [R, d/2] each.
struct RotationFactors {
  at::Tensor cos, sin;
};
/// The factors for `angles`, fp64 [R, d/2], with the config's RoPE scaling.
RotationFactors rotation_factors(const TargetConfig& config, const at::Tensor& angles);

/// A decoder layer of a drafter, such as Clover's augmenting block or EAGLE's layer.  It begins as a copy of
/// a layer of the target.  Frozen, it runs decoder_layer (model/target/decoder_layer.h); trainable, it
/// computes the same with ATen.  The rows of all segments are joined in one tensor, without padding.
class DecoderBlock : public Module {
 public:
  /// Keeps a reference to `config`, the target's or that of an OwnLayerConfig.  `initial`: the target's
  /// layer.  If the MLP is narrower than the target's, it begins as the first config.intermediate units of
  /// that MLP; if it is wider, the additional units begin with zero output weights.  If the input is wider
  /// than H, its last H elements take the place of the target's input, and the weights of the others begin as
  /// zeros.
  DecoderBlock(const TargetConfig& config, const DecoderWeights& initial, const BlockForm& form);

  /// For a frozen block.  x fp32 [R, H] becomes the block's output.  Keys and values go to layer `layer` of
  /// `cache`, to the slots of `placement`.
  void forward_in_place(at::Tensor& x, const Placement& placement, KvCache& cache, int64_t layer) const;
  /// The same for a block without input norm: queries, keys and values read `input` [R, K], in the frozen
  /// dtype.
  void forward_in_place(at::Tensor& x, const at::Tensor& input, const Placement& placement, KvCache& cache,
                        int64_t layer) const;

  /// For a trainable block.  x [R, H]: the rows of all segments, each of which begins at position 0;
  /// attention is causal within a segment.  Returns the output at the rows `frontier` (i64 [F], ascending):
  /// fp32 [F, H].
  at::Tensor forward(const at::Tensor& x, std::span<const Segment> segments, const at::Tensor& frontier,
                     at::ScalarType training_dtype) const;

  // The parts of `forward`, for EagleLayer, whose rows are also guesses.  For a trainable block.

  struct Projected {
    at::Tensor query;  // fp32 [F, Hq, d], rotated
    at::Tensor key;    // fp32 [R, Hkv, d], rotated
    at::Tensor value;  // fp32 [R, Hkv, d]
  };
  /// input fp32 [R, K]; angles fp64 [R, d/2].  Queries are computed for the rows `frontier` (i64 [F]), or for
  /// all rows if it is undefined.
  Projected project(const at::Tensor& input, const at::Tensor& angles, const at::Tensor& frontier,
                    at::ScalarType training_dtype) const;
  /// Attention of each row of `frontier` to its segment up to the row itself: queries of these rows [F, Hq,
  /// d], keys and values of all rows [R, Hkv, d] -> [F, Hq * d].
  at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    std::span<const Segment> segments, const at::Tensor& frontier) const;
  /// Keys or values, with heads in dimension 1; each head is repeated for the query heads that share it:
  /// [.., Hkv, ..] -> [.., Hq, ..].
  at::Tensor repeat_kv(const at::Tensor& kv) const {
    return kv.repeat_interleave(config_->heads / config_->kv_heads, 1);
  }
  /// The output projection and the MLP, each added to x: x fp32 [F, H], attention fp32 [F, Hq * d] -> fp32
  /// [F, H].
  at::Tensor project_output_and_mlp(const at::Tensor& x, const at::Tensor& attention,
                                    at::ScalarType training_dtype) const;
  /// Rotary angles of the segments' rows: fp64 [R, d/2], on `device`.
  at::Tensor angles(std::span<const Segment> segments, at::Device device) const;

  void pack(at::ScalarType dtype) override;
  void unpack() override { packed_ = {}; }
  at::Device device() const { return q_proj_->weight.device(); }

 private:
  /// [R, heads, d]: input [R, K] times the projection; `norm` of each head, or null.
  at::Tensor project_heads(const at::Tensor& input, const Linear& projection, const RmsNorm* norm,
                           at::ScalarType training_dtype) const;

  const TargetConfig* config_;
  std::shared_ptr<RmsNorm> input_layernorm_, q_norm_, k_norm_, post_attention_layernorm_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, o_proj_, gate_proj_, up_proj_, down_proj_;
  DecoderWeights packed_;
};

}  // namespace clover::model
