#include "tests/kernels/here.h"

namespace clover::kernels {
void on_every_path(const std::function<void()>& body) {
  body();
}

namespace here {

at::Tensor place(const at::Tensor& tensor) {
  return tensor.to(at::kCUDA);
}
PackedWeight place(const PackedWeight& weight) {
  return weight.to(at::kCUDA);
}
bool emulated() {
  return false;
}

}  // namespace here
}  // namespace clover::kernels
