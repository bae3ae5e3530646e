#pragma once

#include <ATen/core/Tensor.h>

namespace clover::kernels {

/// e^x, the project's own: the same bits in a vector body and in a scalar tail, within 2 ulp of the true
/// value; 0 below -87.3 (so that masked lanes add exact zeros), +inf above 88.7, NaN for NaN.
float exp_f32(float x);

/// z[r, h] += silu(a[r, h]): the residual block of Medusa and Clover heads.  Both fp32 [R, H] contiguous.
void add_silu_(at::Tensor& z, const at::Tensor& a);

/// Clover's attention decoder after its three products (Clover paper, figure 5):
///   s[r, :] += silu(gate * v[r, :]),  gate = cosine(q[r, g], k[r, g]) for each of `groups` equal slices g of
///   H
/// with both norms clamped below by eps.  All fp32 [R, H] contiguous; groups divides H.
void add_gated_(at::Tensor& s, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t groups,
                double eps);

}  // namespace clover::kernels
