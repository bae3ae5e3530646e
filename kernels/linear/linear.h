#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "kernels/weights/packed_weight.h"

namespace clover::kernels {

/// The rows that a product multiplies: of the weight's dtype; or of fp32 with an RMSNorm that is applied
/// first, to the bits of rms_norm to that dtype. A GPU norms few rows within the product.
struct LinearInput {
  at::Tensor x;          // [R, K], contiguous
  at::Tensor norm = {};  // fp32 [K]; undefined: none
  double eps = 0;

  LinearInput(at::Tensor rows) : x(std::move(rows)) {}
  LinearInput(at::Tensor rows, at::Tensor weight, double norm_eps)
      : x(std::move(rows)), norm(std::move(weight)), eps(norm_eps) {
    TORCH_CHECK(norm.defined(), "LinearInput: the norm's weight is undefined.");
  }
};

/// y[r, n] = (accumulate ? y[r, n] : bias ? bias[n] : 0) + sum_k x[r, k] * W[n, k]
///   x     [R, K]
///   bias  fp32 [N] or undefined (must be undefined when accumulating)
///   y     fp32 [R, N], contiguous, written in place; no part of x
/// The sum runs over k in one fixed order in fp32, added to the start value last, for any R and any number of
/// threads: row r of y depends on row r of x alone.  Any R >= 0, N and K >= 1.  Throws c10::Error on a
/// mismatch.
void linear(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate = false);

/// arg_max (kernels/vocabulary/top_k.h) of each row's product with the weight, without bias: i64 [R]. The
/// sums are not written to memory, which matters for many rows and a large vocabulary (except for those that
/// several blocks of a GPU add up).
at::Tensor linear_arg_max(const LinearInput& x, const PackedWeight& weight);

// Products whose outputs 2i and 2i + 1 are used together, so that a GPU need not write the sums to memory.
// Each sum is that of `linear`.

/// SwiGLU's inner half: out[r, i] = silu(y[r, 2i]) * y[r, 2i + 1], y = x W^T, in fp32, rounded once.
///   x [R, K], gate_up [2I, K] (gates and ups in turn), out [R, I] of its dtype, contiguous
void linear_silu_mul(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out);

/// The weights of queries, keys and values. Elements i and i + d/2 of each query's and key's head are
/// adjacent outputs.
struct QkvWeight {
  PackedWeight matrix;         // [(Hq + 2 Hkv) * d, K]: queries, keys, values
  at::Tensor bias = {};        // fp32, as many; undefined: none
  at::Tensor query_norm = {};  // fp32 [d], RMSNorm of each head before it is turned, its sum in one order
                               // that depends on d alone; undefined: none
  at::Tensor key_norm = {};
  double norm_eps = 0;
};

/// Queries, keys and values of rows, turned by the angles of each row's position (rotate-half layout of
/// Hugging Face's Llama: element i of a head pairs with i + d/2).
///   x        [R, K]
///   cos,sin  fp32 [R, d/2]
///   slots    i64 [R]: page * page_size + row within the page
///   q        fp32 [R, Hq, d], written
///   k,v      [pages, Hkv, page_size, d] bf16|fp16|fp32, written, rounded, at the slots
void linear_rope_and_store(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos,
                           const at::Tensor& sin, const at::Tensor& slots, at::Tensor& q, at::Tensor& k,
                           at::Tensor& v);

}  // namespace clover::kernels
