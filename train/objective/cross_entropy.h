#pragma once

#include <ATen/core/Tensor.h>

namespace clover::train {

struct CrossEntropy {
  at::Tensor sum;    // fp32 scalar, differentiable with respect to `hidden`
  at::Tensor ranks;  // i64 [F]: rank of the label among the logits, ties by lower index; 0: it is the arg max
};

/// Sum over rows of -log softmax(hidden W^T)[label] with a frozen LM head W.
///   hidden fp32 [F, D]; weight [V', D] fp32 or bf16, the dtype of the products; labels i64 [F] in [0, V')
/// Logits exist for at most `chunk` rows at a time: the forward pass also computes the gradient with respect
/// to `hidden`, chunk by chunk, and the backward pass only scales it.  F may be 0.
CrossEntropy chunked_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                   const at::Tensor& labels, int64_t chunk = 256);

/// The same ranks for given logits, fp32 [F, V'] contiguous: labels i64 [F] -> i64 [F].
at::Tensor label_ranks(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace clover::train
