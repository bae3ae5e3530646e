#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/rows/activation_call.h"

namespace clover::kernels {

/// e^x in the project's own formula, which gives the same bits in SIMD lanes, scalar code and CUDA.  Within 2
/// ulp of the true value; 0 below -87.3 (so that masked scores add exact zeros), +inf above 88.7, NaN for
/// NaN.
float exp_f32(float x);

/// z[r, h] += silu(a[r, h]), the end of a residual block of Medusa and Clover heads.  Both fp32 [R, H]
/// contiguous.
void add_silu_(at::Tensor& z, const at::Tensor& a);

/// The keys k and values v of add_gated's R rows.
struct KeyValues {
  // Each row holds H numbers of k, then H of v.  Without `rows`: fp32 [R, 2 H].  With `rows`: [M, 2 H] of the
  // dtype of add_gated's `rounded`, where data[rows[r]] belongs to row r.
  at::Tensor data;
  at::Tensor rows = {};  // i64 [R], each in [0, M), which a GPU does not check; or undefined
};

enum class GateActivation { none, silu };

/// Clover's attention decoder after its matrix products (Clover paper, figure 5).  H is cut into `groups`
/// equal slices g, each with a gate of its own:
///   out[r, g] = s[s_rows[r], g] + activation(gate * v[r, g]),
///   gate = q[r, g] . k[r, g] / (max(|q[r, g]|, eps) * max(|k[r, g]|, eps))
/// where the activation is SiLU in Clover, none in Clover-2.
///   s        fp32 [N, H], the states that are added to
///   s_rows   i64 [R], each in [0, N), which a GPU does not check; undefined: row r of s for row r (N = R)
///   q        fp32 [R, H], queries
///   out      fp32 [R, H], must not be s
///   rounded  [R, H] bf16|fp16|fp32, gets a copy of out
/// All are contiguous; `groups` divides H.
void add_gated(const at::Tensor& s, const at::Tensor& s_rows, const at::Tensor& q, const KeyValues& kv,
               int64_t groups, double eps, GateActivation activation, at::Tensor& out, at::Tensor& rounded);

}  // namespace clover::kernels
