#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "kernels/op/gpu_context.h"

namespace clover::kernels {

bool on_gpu(const char* op, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), op, ": its first tensor is undefined.");
  TORCH_CHECK(tensor.is_cpu() || tensor.is_cuda(), op, ": tensors on ", tensor.device(),
              " are not supported, expected cpu or cuda.");
  return tensor.is_cuda();
}

}  // namespace clover::kernels
