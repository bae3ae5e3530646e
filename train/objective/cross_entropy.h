#pragma once

#include <ATen/core/Tensor.h>

namespace clover::train {

struct CrossEntropy {
  at::Tensor sum;  // fp32 scalar, differentiable with respect to `hidden`
  at::Tensor
      ranks;  // i64 [F]: logits that beat the label's (equal ones with a lower index included); 0 = top-1
};

/// Sum over rows of -log softmax(hidden W^T)[label], against a frozen vocabulary matrix.
///   hidden fp32 [F, D]; weight [V', D] fp32 or bf16, the dtype the products are taken in; labels i64 [F] in
///   [0, V')
/// Logits never exist for more than `chunk` rows: the gradient with respect to `hidden` is computed in the
/// forward pass, chunk by chunk, and only scaled in the backward pass.  F may be 0.
CrossEntropy chunked_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                   const at::Tensor& labels, int64_t chunk = 256);

/// Ranks as above of given logits: fp32 [F, V'] contiguous, labels i64 [F] -> i64 [F].
at::Tensor label_ranks(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace clover::train
