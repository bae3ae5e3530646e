#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

// Argument checks of the kernels.  Each failure is a c10::Error of one sentence naming the function and the
// argument.
namespace clover::kernels {

/// `tensor` is defined, contiguous, of `type` (or, where undefined, of a kernel's element type), of `shape`
/// (-1: any), and on `device`.
void check_tensor(const char* function, const char* name, const at::Tensor& tensor, at::IntArrayRef shape,
                  std::optional<at::ScalarType> type, at::Device device);

/// False for the CPU, true for CUDA; throws for anything else.
bool on_cuda(const char* function, const at::Tensor& tensor);

}  // namespace clover::kernels
