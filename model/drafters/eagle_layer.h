#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

#include "model/drafters/decoder_block.h"
#include "model/drafters/drafter.h"

namespace clover::model {

/// EAGLE's decoder layer, which reads the text and then the guesses.  A row of depth k sits k positions
/// behind the row of the text that it continues; it attends to the text up to there and to its own path of
/// guesses.
///   decoding  guesses write keys and values to slots behind the text's, in the drafter's layer of the cache
///   training  every row of the text begins a path of its own, whose keys the state carries ("training-time
///             test", arXiv 2503.01840, section 3.2)
class EagleLayer : public Module {
 public:
  /// `input_width`: K of the rows that queries, keys and values read.
  EagleLayer(const TargetConfig& config, const DecoderWeights& initial, int64_t input_width);

  /// Rows of the text: `residual` fp32 [R, H] is what the layer adds to, `input` fp32 [R, K] what its
  /// attention reads.  state.hidden [F, H]: the layer's output at the frontier.  Else as Drafter::prime.
  DraftState prime(const at::Tensor& residual, const at::Tensor& input, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv, at::ScalarType training_dtype) const;

  /// Rows of guesses, which continue rows parents[j] of `state`: the same of F' rows.
  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& residual,
                    const at::Tensor& input, DraftKv* kv, at::ScalarType training_dtype) const;

  void pack(at::ScalarType dtype);
  void unpack() { block_->unpack(); }

 private:
  DraftState extend_cached(const DraftState& state, const at::Tensor& parents, const at::Tensor& residual,
                           const at::Tensor& input, DraftKv& kv) const;
  at::Tensor attend_path(const DecoderBlock::Heads& heads, const DraftState& state) const;
  at::Tensor angles_at(const at::Tensor& positions) const;

  const TargetConfig* config_;
  std::shared_ptr<DecoderBlock> block_;
  at::Tensor frequencies_;  // fp64 [d/2], where the weights are
  at::ScalarType frozen_dtype_ = at::ScalarType::Undefined;
};

}  // namespace clover::model
