#pragma once

#include <ATen/core/Tensor.h>

#include "train/objective/loss_terms.h"

namespace clover::train {

// In this file: F rows of one head, D the width of its output, V' the draft vocabulary, H the hidden size of
// the target, P the target's distribution over the draft vocabulary.

/// The vocabulary product of a head, which computes its logits: hidden weight^T + bias.
struct LossHead {
  /// [V', D] fp32 or bf16, the dtype of the product.  It has no autograd gradient; see HeadGradient.
  at::Tensor weight;
  at::Tensor bias{};  // fp32 [V'], or undefined
};

/// What the rows of a head are compared with.  P = softmax(teacher teacher_weight^T).
struct VocabularyTargets {
  at::Tensor labels;            // i64 [F] in [0, V'): the data's tokens
  at::Tensor teacher{};         // [F, H]: the target's post-norm feature before each label, or undefined
  at::Tensor teacher_weight{};  // [V', H]: the target's LM head, or undefined
  /// fp32 [F, n], or undefined: numbers in [0, 1) with which n tokens are drawn from each row's P.  These
  /// tokens then replace `labels` in the cross-entropy, each with weight 1/n.
  at::Tensor uniforms{};
};

/// The gradients of a vocabulary product that is trained.  All depths that share it add to the same tensors,
/// so that their memory does not grow with the depths.
struct HeadGradient {
  at::Tensor weight;  // fp32 [V', D]
  at::Tensor bias;    // fp32 [V'], undefined without a bias
};

/// The result of chunked_vocabulary_loss.
struct VocabularyLoss {
  at::Tensor sum;      // fp32 scalar, differentiable with respect to `hidden`: the weighted terms of all rows
  TermValues terms{};  // for each term that the loss has its sum over the rows, without its weight
  at::Tensor ranks;    // i64 [F] on the CPU: ranks of `labels` among the logits, as label_ranks
};

/// The terms of a loss that read logits, summed over rows.  hidden: fp32 [F, D], where F may be 0.
///
/// Logits of the drafter and the target are [chunk, V'] at most, never [F, V']: the forward pass also
/// computes the gradients, chunk by chunk, and the backward pass only scales the gradient of `hidden`.  If
/// `head_gradient` is given, the gradients of weight and bias, times `scale`, are added to it.  A term that
/// the loss does not have is not computed; if it has none, only the ranks are.  Sums are fp32 within a row
/// and fp64 over rows.
VocabularyLoss chunked_vocabulary_loss(const at::Tensor& hidden, const LossHead& head,
                                       const VocabularyTargets& targets, const LossTerms& terms,
                                       HeadGradient* head_gradient = nullptr, double scale = 1,
                                       int64_t chunk = 256);

/// A scalar for autograd: its value is `value`, its gradient with respect to `input` is `gradient`, which has
/// the shape of `input`.
at::Tensor with_known_gradient(const at::Tensor& input, double value, const at::Tensor& gradient);

/// The best guess of each row, an index in [0, V'): hidden fp32 [F, D] -> i64 [F] on the CPU.  Ties go to the
/// lowest index; a row of NaN guesses 0.  Logits are computed for `chunk` rows at a time.
at::Tensor best_guesses(const at::Tensor& hidden, const LossHead& head, int64_t chunk = 256);

/// The ranks of labels i64 [F] among the logits fp32 [F, V'] of their rows: i64 [F] on the CPU, 0 for the
/// highest logit.  Ties go to the lower index; a NaN ranks last.
at::Tensor label_ranks(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace clover::train
