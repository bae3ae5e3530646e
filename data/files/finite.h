#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace clover::data {

/// Whether no value of a floating-point tensor is NaN or infinite; true for integer tensors.  A contiguous
/// CPU tensor of fp16, bf16, fp32 or fp64 is read once, without a copy, at memory bandwidth.
bool all_finite(const at::Tensor& tensor);

/// `tensor` cast to `dtype` (fp16, bf16 or fp32); integer tensors stay as they are.  InputError when a value
/// is not finite or would overflow in `dtype`.  The message begins with `where` and names the tensor, `name`.
at::Tensor cast_finite(const std::string& where, const std::string& name, const at::Tensor& tensor,
                       at::ScalarType dtype);

}  // namespace clover::data
