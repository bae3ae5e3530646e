#include "kernels/activation.h"

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/cpu_bodies.h"
#include "kernels/cuda.h"

namespace clover::kernels {

float exp_f32(float x) {
  return cpu::bodies().exp(x);
}

void add_silu_(at::Tensor& z, const at::Tensor& a) {
  const bool cuda = on_cuda("add_silu_", z);
  check_tensor("add_silu_", "z", z, {-1, -1}, at::kFloat, z.device());
  check_tensor("add_silu_", "a", a, z.sizes(), at::kFloat, z.device());
  if (z.numel() == 0) return;
  (cuda ? cuda::add_silu_ : cpu::add_silu_)(z, a);
}

void add_gated_(at::Tensor& s, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t groups,
                double eps) {
  const bool cuda = on_cuda("add_gated_", s);
  check_tensor("add_gated_", "s", s, {-1, -1}, at::kFloat, s.device());
  check_tensor("add_gated_", "q", q, s.sizes(), at::kFloat, s.device());
  check_tensor("add_gated_", "k", k, s.sizes(), at::kFloat, s.device());
  check_tensor("add_gated_", "v", v, s.sizes(), at::kFloat, s.device());
  TORCH_CHECK(groups >= 1 && s.size(1) % groups == 0, "add_gated_: ", groups,
              " groups do not divide the width ", s.size(1), ".");
  if (s.numel() == 0) return;
  (cuda ? cuda::add_gated_ : cpu::add_gated_)(s, q, k, v, groups, eps);
}

}  // namespace clover::kernels
