#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "model/drafters/decoder_block.h"
#include "model/drafters/drafter.h"

namespace clover::model {

/// The default tap layers of a target with `count` layers: after 2, count / 2 and count - 3; those that do
/// not ascend are left out.
std::vector<int64_t> default_tap_layers(int64_t count);

/// EAGLE's decoder layer, which reads the text and then the guesses.  A row of depth k stands at the position
/// of its row of the text plus k; it attends to the text up to that row and to its own path of guesses.
///   decoding  guesses write keys and values to slots behind the text's, in the drafter's layer of the cache
///   training  every row of the frontier begins a path of its own, whose keys the state carries (EAGLE-3's
///             training-time test, arXiv 2503.01840, section 3.2)
/// `residual` is overwritten while decoding.
class EagleLayer : public Module {
 public:
  /// `input_width`: the width I of the rows that queries, keys and values read.
  EagleLayer(const TargetConfig& config, const DecoderWeights& initial, int64_t input_width);

  /// Rows of the text: `residual` fp32 [R, H] is what the layer adds to, `input` fp32 [R, I] what its
  /// attention reads.  state.hidden [F, H]: the layer's output at the frontier.  Else as Drafter::prime.
  DraftState prime(const at::Tensor& residual, const at::Tensor& input, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv, at::ScalarType training_dtype) const;

  /// The state at F' rows of guesses: row j continues row parents[j] of `state`.  `residual` [F', H] and
  /// `input` [F', I] as above.
  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& residual,
                    const at::Tensor& input, DraftKv* kv, at::ScalarType training_dtype) const;

  void pack(at::ScalarType dtype) override;

 private:
  DraftState extend_cached(const DraftState& state, const at::Tensor& parents, const at::Tensor& residual,
                           const at::Tensor& input, DraftKv& kv) const;
  at::Tensor attend_path(const DecoderBlock::Heads& heads, const DraftState& state) const;
  at::Tensor angles_at(const at::Tensor& positions) const;
  at::Tensor iota(int64_t count) const;

  const TargetConfig* config_;
  std::shared_ptr<DecoderBlock> block_;
  // On the device of the weights while frozen, so that a draft copies nothing from the CPU; else on the CPU.
  at::Tensor frequencies_;  // fp64 [d/2]
  at::Tensor iota_;         // i32: 0, 1, 2, ..
  at::ScalarType frozen_dtype_ = at::ScalarType::Undefined;
};

}  // namespace clover::model
