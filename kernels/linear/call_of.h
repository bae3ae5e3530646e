#pragma once

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_call.h"

// Fill in the call from arguments of kernels/linear/linear.h, which have been checked.
namespace clover::kernels {

/// The part that all products share: no epilogue, no results.
LinearCall call_of(const LinearInput& x, const PackedWeight& weight);
/// linear
LinearCall call_of(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
                   bool accumulate);
/// linear_silu_mul
LinearCall call_of(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out);
/// linear_rope_and_store
LinearCall call_of(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos, const at::Tensor& sin,
                   const at::Tensor& slots, at::Tensor& q, at::Tensor& k, at::Tensor& v);
/// linear_arg_max, to indices [R]
LinearCall arg_max_call_of(const LinearInput& x, const PackedWeight& weight, at::Tensor& indices);

}  // namespace clover::kernels
