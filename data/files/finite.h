#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace clover::data {

/// Whether every value of a floating-point tensor is a finite number; true of integers.  One pass over the
/// bytes without a copy, at the speed of memory.
bool all_finite(const at::Tensor& tensor);

/// `tensor` in `dtype`, integers as they are.  InputError, beginning with `where`, naming the tensor `name`
/// and its largest value, when it holds what is no finite number or what `dtype` would make infinite.
at::Tensor converted(const std::string& where, const std::string& name, const at::Tensor& tensor,
                     at::ScalarType dtype);

}  // namespace clover::data
