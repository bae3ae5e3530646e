#include "kernels/check.h"

#include <c10/util/Exception.h>

namespace clover::kernels {

void check_tensor(const char* function, const char* name, const at::Tensor& tensor, at::IntArrayRef shape,
                  std::optional<at::ScalarType> type, at::Device device) {
  TORCH_CHECK(tensor.defined(), function, ": ", name, " is undefined.");
  TORCH_CHECK(tensor.device() == device, function, ": ", name, " is on ", tensor.device(), ", expected ",
              device, ".");
  bool same = tensor.dim() == static_cast<int64_t>(shape.size());
  for (size_t i = 0; same && i < shape.size(); ++i) same = shape[i] < 0 || tensor.size(i) == shape[i];
  TORCH_CHECK(same, function, ": ", name, " has shape ", tensor.sizes(), ", expected ", shape,
              " (-1 is any size).");
  const at::ScalarType found = tensor.scalar_type();
  if (type.has_value()) {
    TORCH_CHECK(found == *type, function, ": ", name, " is ", found, ", expected ", *type, ".");
  } else {
    TORCH_CHECK(found == at::kFloat || found == at::kBFloat16 || found == at::kHalf, function, ": ", name,
                " is ", found, ", expected BFloat16, Half or Float.");
  }
  TORCH_CHECK(tensor.is_contiguous(), function, ": ", name, " is not contiguous.");
}

}  // namespace clover::kernels
