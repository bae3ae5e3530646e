#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/op/element.h"

// Checks of an op's arguments.  Each failure is a c10::Error of one sentence that names the op and the
// argument.
namespace clover::kernels {

/// The device of an op's first tensor, which is defined and on the CPU or a GPU.
at::Device device_of(const char* op, const at::Tensor& tensor);

/// `tensor` is defined, contiguous, of `type` (std::nullopt: bf16, fp16 or fp32), of `shape` (-1: any size)
/// and on `device`.
void check_tensor(const char* op, const char* name, const at::Tensor& tensor, at::IntArrayRef shape,
                  std::optional<at::ScalarType> type, at::Device device);

/// c10::Error for other than bf16, fp16 and fp32.
Element element_of(at::ScalarType type);

}  // namespace clover::kernels
