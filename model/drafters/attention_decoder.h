#pragma once

#include <ATen/core/Generator.h>

#include <memory>

#include "kernels/rows/activation.h"
#include "model/drafters/drafter.h"
#include "model/drafters/layers.h"
#include "model/drafters/module.h"

namespace clover::model {

/// The differences between Clover's attention decoder and Clover-2's.
struct AttentionDecoderForm {
  int64_t groups = 1;  // gates, each of an equal part of the width
  bool token_norm = true;
  bool biases = false;
  kernels::GateActivation activation = kernels::GateActivation::silu;
};

/// g = cosine(W_Q RMS(s), W_K e) a group of the width; s + silu(g * W_V e), e = RMS(token's embedding).  W_Q
/// and W_K begin near the identity, W_V at zero, so the decoder begins as the identity on s.  (Clover paper,
/// figure 5.)
class AttentionDecoder : public Module {
 public:
  AttentionDecoder(int64_t hidden, const AttentionDecoderForm& form, double eps, at::Generator generator);

  /// Feeds token ids[j] to row rows[j] of `state`, or to row j: rows i64 [F] or undefined, ids i64 [F];
  /// `embedding` [V, H].
  void forward(DraftState& state, const at::Tensor& rows, const at::Tensor& ids,
               const kernels::PackedWeight& embedding, at::ScalarType training_dtype) const;

  void pack(at::ScalarType dtype) override;
  void unpack() override;

  /// Frozen, on a GPU: computes the keys and values of all tokens once, if they fit into a sixteenth of the
  /// free memory.  A draft then reads rows of that table instead of W_K and W_V, which are a fifth of what a
  /// draft of a 7B model reads.
  void tabulate(const kernels::PackedWeight& embedding);

 private:
  at::Tensor token(const kernels::PackedWeight& embedding, const at::Tensor& ids) const;
  at::Tensor keys_and_values(const kernels::PackedWeight& embedding, const at::Tensor& ids) const;

  int64_t groups_;
  double eps_;
  kernels::GateActivation activation_;
  std::shared_ptr<RmsNorm> state_norm_, token_norm_;  // the latter null without token_norm
  std::shared_ptr<Linear> query_, key_, value_;
  kernels::PackedWeight key_value_;  // [2 H, H]
  at::Tensor key_value_bias_;        // fp32 [2 H] or undefined
  at::Tensor table_;                 // [V, 2 H] of the frozen dtype, or undefined
};

/// `linear`'s weight [H, N H] becomes [I | 0 ..] plus noise of N(0, 0.01 / sqrt(H)).
void begin_near_identity(Linear& linear, at::Generator generator);

/// x[rows], or all of x where rows are undefined: fp32 [F, H].
at::Tensor chosen_rows(const at::Tensor& x, const at::Tensor& rows);

}  // namespace clover::model
