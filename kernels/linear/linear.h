#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "kernels/weights/packed_weight.h"

namespace clover::kernels {

/// The rows that a product multiplies: rows of the weight's dtype; or fp32 rows and the weight of an RMSNorm,
/// which is applied first and rounded to the weight's dtype, with the same bits as rms_norm (kernels/rows/).
struct LinearInput {
  at::Tensor x;          // [R, K], contiguous
  at::Tensor norm = {};  // fp32 [K], the weight of the RMSNorm; undefined: no norm
  double eps = 0;

  LinearInput(at::Tensor rows) : x(std::move(rows)) {}
  LinearInput(at::Tensor rows, at::Tensor weight, double norm_eps)
      : x(std::move(rows)), norm(std::move(weight)), eps(norm_eps) {
    TORCH_CHECK(norm.defined(), "LinearInput: the norm's weight is undefined.");
  }
};

/// y[r, n] = (accumulate ? y[r, n] : bias ? bias[n] : 0) + sum_k x[r, k] * W[n, k]
///   x       [R, K]
///   weight  W [N, K]
///   bias    fp32 [N], or undefined; must be undefined if `accumulate` is set
///   y       fp32 [R, N], contiguous, written in place; shares no memory with x
/// The sum over k is computed in fp32 in one fixed order, then added to bias or y.  The order does not depend
/// on R or on the number of threads, and row r of y depends on row r of x alone.  R >= 0; N, K >= 1.
/// c10::Error on a mismatch.
void linear(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate = false);

/// arg_max (kernels/vocabulary/top_k.h) of each row of x W^T: i64 [R].  The logits are not kept in memory,
/// which saves time and space for many rows and a large vocabulary.
at::Tensor linear_arg_max(const LinearInput& x, const PackedWeight& weight);

// Products of which outputs 2i and 2i + 1 are used together, which lets a GPU use the sums without writing
// them to memory first.  Each sum has the bits that `linear` yields.

/// SwiGLU: out[r, i] = silu(y[r, 2i]) * y[r, 2i + 1] with y = x W^T, computed in fp32 and rounded once.
///   x [R, K]; gate_up W [2I, K], rows of the gate and up projections interleaved; out [R, I] of gate_up's
///   dtype, contiguous
void linear_silu_mul(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out);

/// The projections of queries, keys and values, for Hq query heads and Hkv kv heads of size d.  In each head
/// of queries and keys, elements i and i + d/2, which RoPE rotates together, are adjacent outputs 2i and 2i +
/// 1; bias and norms are in the same order.
struct QkvWeight {
  PackedWeight matrix;   // [(Hq + 2 Hkv) * d, K]: queries, then keys, then values
  at::Tensor bias = {};  // fp32 [(Hq + 2 Hkv) * d]; undefined: none
  at::Tensor query_norm =
      {};                    // fp32 [d], weight of an RMSNorm of each query head before RoPE; undefined: none
  at::Tensor key_norm = {};  // the same for key heads; both norms are defined or neither
  double norm_eps = 0;
};

/// Computes queries, keys and values of R rows, applies RoPE to queries and keys (as Hugging Face's Llama:
/// element i of a head is rotated with element i + d/2), and writes keys and values to the KV cache.
///   x        [R, K]
///   cos,sin  fp32 [R, d/2] of the angles of each row's position
///   slots    i64 [R] where a row's key and value go: page * page_size + row within the page
///   q        fp32 [R, Hq, d], written
///   k,v      [pages, Hkv, page_size, d] bf16|fp16|fp32, written at the slots, rounded
void linear_rope_and_store(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos,
                           const at::Tensor& sin, const at::Tensor& slots, at::Tensor& q, at::Tensor& k,
                           at::Tensor& v);

}  // namespace clover::kernels
