#include "kernels/rows/activation.h"

#include <ATen/Functions.h>

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/cpu/cpu_bodies.h"
#include "kernels/gpu/cuda.h"

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

void add_gated(const at::Tensor& s, const at::Tensor& rows, const at::Tensor& q, const KeyValues& kv,
               int64_t groups, double eps, GateActivation activation, at::Tensor& out, at::Tensor& rounded) {
  const bool cuda = on_cuda("add_gated", s);
  const at::Device device = s.device();
  check_tensor("add_gated", "s", s, {-1, -1}, at::kFloat, device);
  if (rows.defined()) check_tensor("add_gated", "rows", rows, {-1}, at::kLong, device);
  const int64_t count = (rows.defined() ? rows : s).size(0), width = s.size(1);
  check_tensor("add_gated", "q", q, {count, width}, at::kFloat, device);
  if (kv.rows.defined()) {
    check_tensor("add_gated", "kv.rows", kv.rows, {count}, at::kLong, device);
    check_tensor("add_gated", "kv", kv.of, {-1, 2 * width}, rounded.scalar_type(), device);
  } else {
    check_tensor("add_gated", "kv", kv.of, {count, 2 * width}, at::kFloat, device);
  }
  check_tensor("add_gated", "out", out, {count, width}, at::kFloat, device);
  check_tensor("add_gated", "rounded", rounded, {count, width}, std::nullopt, device);
  TORCH_CHECK(groups >= 1 && width % groups == 0, "add_gated: ", groups, " groups do not divide the width ",
              width, ".");
  if (out.numel() == 0) return;
  if (cuda) return cuda::add_gated(s, rows, q, kv, groups, eps, activation, out, rounded);
  rows.defined() ? at::index_select_out(out, s.detach(), 0, rows) : out.copy_(s);
  cpu::add_gated_(out, q, kv.rows.defined() ? kv.of.index_select(0, kv.rows).to(at::kFloat) : kv.of, groups,
                  eps, activation);
  rounded.copy_(out);
}

}  // namespace clover::kernels
