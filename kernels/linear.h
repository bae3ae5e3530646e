#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/packed_weight.h"

namespace clover::kernels {

/// y[r, n] = (accumulate ? y[r, n] : bias ? bias[n] : 0) + sum_k x[r, k] * W[n, k]
///   x     [R, K], dtype of `weight`, contiguous
///   bias  fp32 [N] or undefined (must be undefined when accumulating)
///   y     fp32 [R, N], contiguous, written in place
/// The sum runs over k in one fixed order in fp32, added to the start value last, for any R and any number of
/// threads: row r of y depends on row r of x alone.  Any R >= 0, N and K >= 1.  Throws c10::Error on a
/// mismatch.
void linear(const at::Tensor& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate = false);

}  // namespace clover::kernels
