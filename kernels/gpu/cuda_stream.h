#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/gpu/stream.h"

namespace clover::kernels::cuda {

/// The stream that ATen would run an op of this tensor on.
Stream current_stream(const at::Tensor& tensor);

}  // namespace clover::kernels::cuda
