#pragma once

#include <ATen/core/Tensor.h>

namespace clover::kernels {

/// In each part p of a cache: slot moves[1, i] gets all heads of slot moves[0, i], for all i in order.
///   cache  [P, pages, H, page_size, d] bf16|fp16|fp32 contiguous, written in place; slot s is row s %
///   page_size of page s / page_size
///   moves  i64 [3, N] on the cache's device: from (-1: nothing moves), to, group; nobody checks them
/// Moves of one group stand together; a slot that is written to is read by no later move of its group and by
/// no other group, so groups may go side by side.  On a GPU a head's d elements are multiples of 16 bytes.
void move_rows(at::Tensor& cache, const at::Tensor& moves);

}  // namespace clover::kernels
