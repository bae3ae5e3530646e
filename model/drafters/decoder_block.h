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

/// The configuration of a drafter's own decoder layers: the target's but for three settings, 0 where it
/// is as the target.  "rope_theta": plain RoPE of that base.  "mlp_width" and "norm_eps", which not all kinds
/// have: the width of the MLP, and the epsilon of norms.
struct OwnLayerConfig {
  /// `settings`: those of a drafter of `kind`, complete.  Guesses that are written to the cache on a GPU
  /// cannot be rotated by the length of their text: with `writes_guesses` RoPE is plain also where the
  /// target's depends on it.  InputError naming "rope_theta" for a base below 1.
  OwnLayerConfig(const TargetConfig& target, const std::string& kind, const nlohmann::json& settings,
                 bool writes_guesses = false);
  OwnLayerConfig(const OwnLayerConfig&) = delete;  // layers refer to it

  const Rope* own_rope() const { return as_target ? nullptr : &config.rope; }  // null: the target's rotation

  TargetConfig config;
  bool as_target;  // rotates as the target does
};

/// The declarations of these settings.
Setting rope_theta_setting();
Setting mlp_width_setting();
Setting norm_eps_setting();

/// How a block differs from a decoder layer of the target.
struct BlockForm {
  bool mlp = true;          // false: the attention half only
  bool input_norm = true;   // false: queries, keys and values read rows that are given to them
  int64_t input_width = 0;  // K of these rows; 0: the hidden size H
  bool as_llama = false;    // without the biases and head norms that the target's layers may have
};

/// A trainable decoder layer that begins as a copy of one of the target's (Clover's augmenting block, EAGLE's
/// layer).  Frozen, it is `decoder_layer` on packed weights; trainable, the same maths in ATen over packed
/// ragged rows.
class DecoderBlock : public Module {
 public:
  /// `config` is kept; it is the target's or an OwnLayerConfig's.  Where its `intermediate` is not the
  /// target's, the MLP begins with the first of the target's columns; further ones begin without effect.
  /// Where the block reads wider rows than the target's layer did, the copied weights read their last H.
  DecoderBlock(const TargetConfig& config, const DecoderWeights& initial, const BlockForm& form);

  /// Frozen.  x fp32 [R, H] becomes the block's output; keys and values go to `layer` of `cache`, as
  /// `placement` says.
  void forward_in_place(at::Tensor& x, const Placement& placement, KvCache& cache, int64_t layer) const;
  /// The same where `input` [R, K], in the frozen dtype, is what queries, keys and values read.
  void forward_in_place(at::Tensor& x, const at::Tensor& input, const Placement& placement, KvCache& cache,
                        int64_t layer) const;

  /// Trainable.  Every segment begins at position 0 and is causal.  Keys and values come from all rows, the
  /// rest is computed at `frontier` rows (i64 [F], ascending) alone: -> fp32 [F, H].
  at::Tensor forward(const at::Tensor& x, std::span<const Segment> segments, const at::Tensor& frontier,
                     at::ScalarType training_dtype) const;

  // The parts of that, for blocks whose rows are not those of a text alone.  Trainable.
  struct Heads {
    at::Tensor query, key, value;  // fp32 [R, Hq or Hkv, d], the first two turned by their positions
  };
  /// input fp32 [R, K]; angles fp64 [R, d/2]; the queries are those of rows `frontier` (i64 [F]) or, where it
  /// is undefined, of all.
  Heads project(const at::Tensor& input, const at::Tensor& angles, const at::Tensor& frontier,
                at::ScalarType training_dtype) const;
  /// Softmax over the keys of a segment up to each row itself: queries of rows `frontier` [F, Hq, d], keys
  /// and values of all rows -> [F, Hq * d].
  at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    std::span<const Segment> segments, const at::Tensor& frontier) const;
  /// Keys or values [.., Hkv, ..], heads in dimension 1, each as often as query heads share it: [.., Hq, ..].
  at::Tensor repeat_kv(const at::Tensor& kv) const {
    return kv.repeat_interleave(config_->heads / config_->kv_heads, 1);
  }
  /// x + o(attended), then the MLP: x fp32 [F, H], attended fp32 [F, Hq * d] -> fp32 [F, H].
  at::Tensor finish(const at::Tensor& x, const at::Tensor& attended, at::ScalarType training_dtype) const;
  /// Rotary angles of the segments' rows: fp64 [R, d/2], on `device`.
  at::Tensor angles(std::span<const Segment> segments, at::Device device) const;

  void pack(at::ScalarType dtype) override;
  void unpack() override { packed_ = {}; }
  at::Device device() const { return q_proj_->weight.device(); }

 private:
  at::Tensor heads_of(const at::Tensor& input, const Linear& projection, const RmsNorm* norm,
                      at::ScalarType training_dtype) const;

  const TargetConfig* config_;
  std::shared_ptr<RmsNorm> input_layernorm_, q_norm_, k_norm_, post_attention_layernorm_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, o_proj_, gate_proj_, up_proj_, down_proj_;
  DecoderWeights packed_;
};

}  // namespace clover::model
