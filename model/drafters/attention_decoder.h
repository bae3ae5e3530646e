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
  int64_t groups = 1;      // gates; each one scales an equal part of the H elements
  bool token_norm = true;  // RMSNorm on the token's embedding
  bool biases = false;     // of W_Q, W_K and W_V
  kernels::GateActivation activation = kernels::GateActivation::silu;  // of the gated value
};

/// Feeds a token to a draft's state (Clover paper, figure 5).  s [H] is the state, x [H] the token's row of
/// an embedding, for which Clover takes the LM head:
///   e = RMSNorm(x)
///   g = cosine(W_Q RMSNorm(s), W_K e), one gate for each group of elements
///   s <- s + silu(g * W_V e)
/// Clover-2 has no norm in e and no silu (AttentionDecoderForm).  W_Q and W_K begin near the identity and W_V
/// as zeros, so the decoder begins by leaving s as it is.
class AttentionDecoder : public Module {
 public:
  AttentionDecoder(int64_t hidden, const AttentionDecoderForm& form, double eps, at::Generator generator);

  /// Row j of the new state.hidden is row rows[j] of the old one with token ids[j] fed to it.  rows i64 [F],
  /// undefined for 0, 1, ..; ids i64 [F]; `embedding` [V, H].  `training_dtype` as in Linear::forward.
  void forward(DraftState& state, const at::Tensor& rows, const at::Tensor& ids,
               const kernels::PackedWeight& embedding, at::ScalarType training_dtype) const;

  void pack(at::ScalarType dtype) override;
  void unpack() override;

  /// For a frozen decoder on a GPU: computes W_K e and W_V e of all tokens once, if they fit into a sixteenth
  /// of the free memory.  Drafts then read rows of that table instead of both matrices, which are a fifth of
  /// the bytes that a draft for a 7B target reads.
  void tabulate(const kernels::PackedWeight& embedding);

 private:
  at::Tensor token_embedding(const kernels::PackedWeight& embedding, const at::Tensor& ids) const;
  at::Tensor keys_and_values(const kernels::PackedWeight& embedding, const at::Tensor& ids) const;

  int64_t groups_;
  double eps_;
  kernels::GateActivation activation_;
  std::shared_ptr<RmsNorm> state_norm_, token_norm_;  // token_norm_ is null without that norm
  std::shared_ptr<Linear> query_, key_, value_;       // W_Q, W_K, W_V
  kernels::PackedWeight key_value_;                   // [2 H, H] W_K and W_V, while frozen
  at::Tensor key_value_bias_;                         // fp32 [2 H] or undefined
  at::Tensor table_;                                  // [V, 2 H] in the frozen dtype (tabulate), or undefined
};

/// Sets the weight [H, K], K >= H, to the identity, followed by zeros, plus normal noise of standard
/// deviation 0.01 / sqrt(H).
void begin_near_identity(Linear& linear, at::Generator generator);

/// x[rows], or x if `rows` is undefined, in fp32: [F, H].
at::Tensor rows_or_all(const at::Tensor& x, const at::Tensor& rows);

}  // namespace clover::model
