#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace clover::data {

/// Whether no value of a floating-point tensor is NaN or infinite; true for integer tensors.  Reads the bytes
/// once, without a copy, at memory bandwidth.
bool all_finite(const at::Tensor& tensor);

/// `tensor` cast to `dtype`; integer tensors stay as they are.  InputError (beginning with `where`, naming
/// tensor `name` and its largest value) when a value is not finite or would overflow in `dtype`.
at::Tensor cast_finite(const std::string& where, const std::string& name, const at::Tensor& tensor,
                       at::ScalarType dtype);

}  // namespace clover::data
