#pragma once

#include "model/drafters/module.h"

#include <memory>
#include <span>

#include "model/drafters/drafter.h"
#include "model/drafters/layers.h"
#include "model/target/decoder_layer.h"

namespace clover::model {

/// A trainable decoder layer that begins as a copy of one of the target's (Clover's augmenting block).
/// Frozen, it is `decoder_layer` on packed weights; trainable, the same maths in ATen over packed ragged
/// rows.
class DecoderBlock : public Module {
 public:
  /// `with_mlp` false keeps the attention half only.
  DecoderBlock(const TargetConfig& config, const DecoderWeights& initial, bool with_mlp);

  /// Frozen.  x fp32 [R, H] becomes the block's output; keys and values go to `layer` of `cache`, as
  /// `placement` says.
  void forward_in_place(at::Tensor& x, const Placement& placement, KvCache& cache, int64_t layer) const;

  /// Trainable.  Every segment begins at position 0 and is causal.  Keys and values come from all rows, the
  /// rest is computed at `frontier` rows (i64 [F], ascending) alone: -> fp32 [F, H].
  at::Tensor forward(const at::Tensor& x, std::span<const Segment> segments, const at::Tensor& frontier,
                     at::ScalarType training_dtype) const;

  void pack(at::ScalarType dtype);
  void unpack() { packed_ = {}; }

 private:
  at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    std::span<const Segment> segments, const at::Tensor& frontier) const;

  /// Rotary angles of the segments' rows: fp64 [R, d/2], on `device`.
  at::Tensor angles(std::span<const Segment> segments, at::Device device) const;

  const TargetConfig* config_;
  std::shared_ptr<RmsNorm> input_layernorm_, q_norm_, k_norm_, post_attention_layernorm_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, o_proj_, gate_proj_, up_proj_, down_proj_;
  DecoderWeights packed_;
};

}  // namespace clover::model
