#pragma once

#include <ATen/core/Tensor.h>

namespace clover::kernels {

/// out[r, h] = x[r, h] / sqrt(mean_h(x[r, :]^2) + eps) * weight[h], all in fp32, rounded once to out's dtype.
///   x fp32 [R, H] contiguous; weight fp32 [H]; out [R, H] bf16|fp16|fp32 contiguous, written in place
/// The mean is taken in one fixed order that depends on H alone.
void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out);

}  // namespace clover::kernels
