#include "kernels/rms_norm.h"

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/cuda.h"

namespace clover::kernels {

void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out) {
  const bool cuda = on_cuda("rms_norm", x);
  check_tensor("rms_norm", "x", x, {-1, -1}, at::kFloat, x.device());
  check_tensor("rms_norm", "weight", weight, {x.size(1)}, at::kFloat, x.device());
  check_tensor("rms_norm", "out", out, x.sizes(), std::nullopt, x.device());
  if (x.numel() == 0) return;
  (cuda ? cuda::rms_norm : cpu::rms_norm)(x, weight, eps, out);
}

}  // namespace clover::kernels
