#include "kernels/op/check.h"

#include <c10/util/Exception.h>

#include "kernels/op/gpu_context.h"

namespace clover::kernels {
namespace {

bool is_element(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

}  // namespace

void check_tensor(const char* op, const char* name, const at::Tensor& tensor, at::IntArrayRef shape,
                  std::optional<at::ScalarType> type, at::Device device) {
  TORCH_CHECK(tensor.defined(), op, ": ", name, " is undefined.");
  TORCH_CHECK(tensor.device() == device, op, ": ", name, " is on ", tensor.device(), ", expected ", device,
              ".");
  bool same = tensor.dim() == static_cast<int64_t>(shape.size());
  for (size_t i = 0; same && i < shape.size(); ++i) same = shape[i] < 0 || tensor.size(i) == shape[i];
  TORCH_CHECK(same, op, ": ", name, " has shape ", tensor.sizes(), ", expected ", shape,
              " (-1 is any size).");
  const at::ScalarType found = tensor.scalar_type();
  if (type.has_value()) {
    TORCH_CHECK(found == *type, op, ": ", name, " is ", found, ", expected ", *type, ".");
  } else {
    TORCH_CHECK(is_element(found), op, ": ", name, " is ", found, ", expected BFloat16, Half or Float.");
  }
  TORCH_CHECK(tensor.is_contiguous(), op, ": ", name, " is not contiguous.");
}

at::Device device_of(const char* op, const at::Tensor& tensor) {
  on_gpu(op, tensor);
  return tensor.device();
}

Element element_of(at::ScalarType type) {
  TORCH_CHECK(is_element(type), "Kernels take bfloat16, float16 or float32, found ", type, ".");
  return type == at::kFloat ? Element::fp32 : type == at::kBFloat16 ? Element::bf16 : Element::fp16;
}

}  // namespace clover::kernels
