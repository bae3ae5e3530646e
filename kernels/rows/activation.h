#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/rows/activation_call.h"

namespace clover::kernels {

/// e^x, the project's own: the same bits in vectors and in a scalar tail, within 2 ulp of the true value; 0
/// below -87.3 (so that masked lanes add exact zeros), +inf above 88.7, NaN for NaN.
float exp_f32(float x);

/// z[r, h] += silu(a[r, h]), the residual block of Medusa and Clover heads.  Both fp32 [R, H] contiguous.
void add_silu_(at::Tensor& z, const at::Tensor& a);

/// Keys and values of rows: keys, then values.
struct KeyValues {
  at::Tensor data;       // fp32 [R, 2 H]; or, with `rows`, [M, 2 H] of the dtype of add_gated's `rounded`
  at::Tensor rows = {};  // i64 [R], each in [0, M), which a GPU does not check
};

enum class GateActivation { none, silu };

/// Clover's attention decoder after its products (Clover paper, figure 5; without silu Clover-2's):
///   out[r, :] = s[rows[r], :] + silu(gate * v[r, :]),
///   gate = cosine(q[r, g], k[r, g]) for each of `groups` equal slices g of H
/// with both norms clamped below by eps.
///   s fp32 [N, H]; rows i64 [R], each in [0, N), which a GPU does not check; undefined: r for row r
///   q fp32 [R, H]; out fp32 [R, H], which is not s; rounded [R, H] bf16|fp16|fp32, out once more
/// All are contiguous; groups divides H.
void add_gated(const at::Tensor& s, const at::Tensor& rows, const at::Tensor& q, const KeyValues& kv,
               int64_t groups, double eps, GateActivation activation, at::Tensor& out, at::Tensor& rounded);

}  // namespace clover::kernels
