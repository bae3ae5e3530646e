#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/op/element.h"

// Checks of an op's arguments.  Each failure is a c10::Error of one sentence that names the op and the
// argument.
namespace clover::kernels {

/// The device of an op's first tensor; checks that it is defined and on the CPU or a GPU.
at::Device device_of(const char* op, const at::Tensor& tensor);

/// Checks that `tensor`, the op's argument `name`, is defined, contiguous, of `type` (std::nullopt: bf16,
/// fp16 or fp32), of `shape` (-1: any size) and on `device`.
void check_tensor(const char* op, const char* name, const at::Tensor& tensor, at::IntArrayRef shape,
                  std::optional<at::ScalarType> type, at::Device device);

/// The Element of `type`, which must be bf16, fp16 or fp32.
Element element_of(at::ScalarType type);

}  // namespace clover::kernels
