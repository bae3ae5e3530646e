#pragma once

#include <ATen/core/Tensor.h>

#include "train/objective/loss_terms.h"

namespace clover::train {

/// The vocabulary product of a head, as a loss computes it.
struct LossHead {
  at::Tensor
      weight;  // [V', D] fp32 or bf16, the dtype of the products; has no autograd gradient (HeadGradient)
  at::Tensor bias{};  // fp32 [V'], or undefined
};

/// What the F rows of a head should say.
struct VocabularyTargets {
  at::Tensor labels;            // i64 [F] in [0, V'): the data's tokens
  at::Tensor teacher{};         // [F, H]: the target's post-norm feature before each label, or undefined
  at::Tensor teacher_weight{};  // [V', H]: the target's LM head, P = softmax of the product; or undefined
  /// fp32 [F, n], or undefined: numbers in [0, 1) that draw n tokens of each row from P.  They are the labels
  /// of the cross-entropy then, each with weight 1/n, in place of the data's.
  at::Tensor uniforms{};
};

/// Gradients of a drafter's own head, to which every depth adds its part: fp32 [V', D] and [V'] (undefined
/// without a bias), so that their memory does not grow with the depths.
struct HeadGradient {
  at::Tensor weight;
  at::Tensor bias;
};

struct VocabularyLoss {
  at::Tensor sum;      // fp32 scalar, differentiable with respect to `hidden`: the weighted terms of all rows
  TermValues terms{};  // of each term that the loss has, its sum over the rows before it is weighted
  at::Tensor ranks;    // i64 [F]: rank of the data's label among the logits, ties by lower index; 0: the best
};

/// The terms of a loss that read logits, summed over rows: z = hidden W^T + b.
///   hidden fp32 [F, D].  F may be 0.
/// Logits, of the drafter and of the target, exist for at most `chunk` rows at a time: the forward pass also
/// computes the gradients, chunk by chunk, and the backward pass only scales that of `hidden`.  Where
/// `head_gradient` is given, the gradients of weight and bias times `scale` are added to it.  Terms without a
/// weight cost nothing; without any, only the ranks are computed.  Sums are fp32 within a row and fp64 over
/// rows.
VocabularyLoss chunked_vocabulary_loss(const at::Tensor& hidden, const LossHead& head,
                                       const VocabularyTargets& targets, const LossTerms& terms,
                                       HeadGradient* head_gradient = nullptr, double scale = 1,
                                       int64_t chunk = 256);

/// A scalar of value `value` whose gradient with respect to `input` is `gradient`, of input's shape.
at::Tensor with_known_gradient(const at::Tensor& input, double value, const at::Tensor& gradient);

/// The best guess of each row, an index in [0, V'): hidden fp32 [F, D] -> i64 [F] on the CPU.  Ties go to the
/// lowest index; a row of NaN guesses 0.  Logits exist for `chunk` rows at a time.
at::Tensor best_guesses(const at::Tensor& hidden, const LossHead& head, int64_t chunk = 256);

/// The ranks of labels i64 [F] among logits, fp32 [F, V'] contiguous: i64 [F] on the CPU.  A NaN ranks last.
at::Tensor label_ranks(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace clover::train
