#include <c10/util/Exception.h>

#include "kernels/check.h"

namespace clover::kernels {

bool on_cuda(const char* function, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), function, ": its first tensor is undefined.");
  TORCH_CHECK(tensor.is_cpu() || tensor.is_cuda(), function, ": tensors on ", tensor.device(),
              " are not supported, expected cpu or cuda.");
  return tensor.is_cuda();
}

}  // namespace clover::kernels
