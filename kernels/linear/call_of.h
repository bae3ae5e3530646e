#pragma once

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_call.h"

// From the checked arguments of kernels/linear/linear.h to the call.
namespace clover::kernels {

/// Without an epilogue and without where its results go.
LinearCall call_of(const LinearInput& x, const PackedWeight& weight);
LinearCall call_of(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
                   bool accumulate);
LinearCall call_of(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out);
LinearCall call_of(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos, const at::Tensor& sin,
                   const at::Tensor& slots, at::Tensor& q, at::Tensor& k, at::Tensor& v);
/// The arg-max of each row's sums, to indices [R].
LinearCall best_call_of(const LinearInput& x, const PackedWeight& weight, at::Tensor& indices);

}  // namespace clover::kernels
