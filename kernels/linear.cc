#include "kernels/linear.h"

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/cuda.h"

namespace clover::kernels {

void linear(const at::Tensor& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate) {
  TORCH_CHECK(weight.defined(), "linear: the weight is undefined.");
  const bool cuda = on_cuda("linear", x);
  const at::Device device = weight.panels().device();
  check_tensor("linear", "x", x, {-1, weight.inputs()}, weight.dtype(), device);
  check_tensor("linear", "y", y, {x.size(0), weight.outputs()}, at::kFloat, device);
  if (bias.defined()) {
    TORCH_CHECK(!accumulate, "linear: a bias cannot be given when accumulating into y.");
    check_tensor("linear", "bias", bias, {weight.outputs()}, at::kFloat, device);
  }
  if (x.size(0) == 0) return;
  (cuda ? cuda::linear : cpu::linear)(x, weight, bias, y, accumulate);
}

}  // namespace clover::kernels
