#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "model/drafters/decoder_block.h"
#include "model/drafters/drafter.h"

namespace clover::model {

/// The decoder layer of EAGLE and EAGLE-3.  It reads the rows of the text and then those of guesses.  A guess
/// of depth k that continues row t of the text has position t + k; it attends to the text up to row t and to
/// the guesses on its own path.
///   decoding  rows of guesses write keys and values to cache slots after those of the text
///   training  a path of guesses begins at every row of the frontier, and the DraftState holds its keys and
///             values (EAGLE-3's training-time test, arXiv 2503.01840, section 3.2)
class EagleLayer : public Module {
 public:
  /// `form.input_width`: the width K of the rows that queries, keys and values read; they have no norm.
  EagleLayer(const TargetConfig& config, const DecoderWeights& initial, BlockForm form);

  /// Reads the R rows of the text, like Drafter::prime.  `residual` fp32 [R, H]: what the layer adds to;
  /// decoding overwrites it.  `input` fp32 [R, K]: what queries, keys and values read.  Returns a state whose
  /// `hidden` [F, H] is the layer's output at the frontier.
  DraftState prime(const at::Tensor& residual, const at::Tensor& input, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv, at::ScalarType training_dtype) const;

  /// Reads F' rows of guesses, like Drafter::extend: row j continues row parents[j] of `state`.  `residual`
  /// [F', H] and `input` [F', K] as above.
  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& residual,
                    const at::Tensor& input, DraftKv* kv, at::ScalarType training_dtype) const;

  void pack(at::ScalarType dtype) override;

 private:
  DraftState extend_cached(const DraftState& state, const at::Tensor& parents, const at::Tensor& residual,
                           const at::Tensor& input, DraftKv& kv) const;
  at::Tensor attend_path(const DecoderBlock::Projected& projected, const DraftState& state) const;
  at::Tensor angles_at(const at::Tensor& positions) const;
  at::Tensor iota(int64_t count) const;

  const TargetConfig* config_;
  std::shared_ptr<DecoderBlock> block_;
  // On the weights' device while frozen, so that a captured draft copies nothing from the CPU; else on the
  // CPU.
  at::Tensor frequencies_;  // fp64 [d/2], inverse frequencies of RoPE
  at::Tensor iota_;         // i32: 0, 1, 2, ..
  at::ScalarType frozen_dtype_ = at::ScalarType::Undefined;
};

}  // namespace clover::model
