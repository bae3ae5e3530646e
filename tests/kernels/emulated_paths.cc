#include "kernels/gpu/gpu.h"
#include "tests/kernels/here.h"

namespace clover::kernels {

void on_every_path(const std::function<void()>& body) {
  body();
}

namespace here {

at::Tensor place(const at::Tensor& tensor) {
  return tensor.to(open_gpu(0));
}
PackedWeight place(const PackedWeight& weight) {
  return weight.to(open_gpu(0));
}
bool emulated() {
  return true;
}

}  // namespace here
}  // namespace clover::kernels
