#pragma once

#include <ATen/core/Tensor.h>

namespace clover::kernels {

/// In each part p of a cache: row moves[1, i] becomes row moves[0, i], for all i in order.
///   cache  [P, S, W] bf16|fp16|fp32 contiguous, written in place
///   moves  i64 [3, N] on the cache's device: from (-1: nothing moves), to, group; nobody checks them
/// Moves of one group stand together; a row that is written to is read by no later move of its group and by
/// no other group, so groups may go side by side.  On a GPU rows are multiples of 16 bytes.
void move_rows(at::Tensor& cache, const at::Tensor& moves);

}  // namespace clover::kernels
