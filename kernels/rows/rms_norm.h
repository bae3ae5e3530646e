#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/weights/packed_weight.h"

namespace clover::kernels {

/// out[r, h] = x[r, h] / sqrt(mean_h(x[r, :]^2) + eps) * weight[h], all in fp32, rounded once to out's dtype.
///   x fp32 [R, H] contiguous; weight fp32 [H]; out [R, H] bf16|fp16|fp32 contiguous, written in place
/// The mean is taken in one fixed order that depends on H alone.
void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out);

/// The same of some rows: out[r] is the norm of x[rows[r]].  x fp32 [N, H]; rows i64 [R], each in [0, N),
/// which a GPU does not check.
void rms_norm_of(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out);
/// Of rows of a matrix of weights, such as embeddings: x [N, H] packed.
void rms_norm_of(const PackedWeight& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out);

/// The norm of x + silu(a): what follows a residual block.  x and a fp32 [R, H].
void silu_rms_norm(const at::Tensor& x, const at::Tensor& a, const at::Tensor& weight, double eps,
                   at::Tensor& out);

}  // namespace clover::kernels
