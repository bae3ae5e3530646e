#include "kernels/rows/rms_norm.h"

#include <ATen/Functions.h>

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/gpu/cuda.h"
#include "kernels/rows/activation.h"

namespace clover::kernels {
namespace {

void check_norm(const char* function, const at::Tensor& weight, const at::Tensor& out, int64_t rows,
                int64_t width, at::Device device) {
  check_tensor(function, "weight", weight, {width}, at::kFloat, device);
  check_tensor(function, "out", out, {rows, width}, std::nullopt, device);
}

}  // namespace

void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out) {
  const bool cuda = on_cuda("rms_norm", x);
  check_tensor("rms_norm", "x", x, {-1, -1}, at::kFloat, x.device());
  check_norm("rms_norm", weight, out, x.size(0), x.size(1), x.device());
  if (x.numel() == 0) return;
  if (cuda) return cuda::rms_norm(x, {}, {}, weight, eps, out);
  cpu::rms_norm(x, weight, eps, out);
}

void rms_norm_of(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out) {
  const bool cuda = on_cuda("rms_norm_of", x);
  check_tensor("rms_norm_of", "x", x, {-1, -1}, at::kFloat, x.device());
  check_tensor("rms_norm_of", "rows", rows, {-1}, at::kLong, x.device());
  check_norm("rms_norm_of", weight, out, rows.size(0), x.size(1), x.device());
  if (out.numel() == 0) return;
  if (cuda) return cuda::rms_norm(x, rows, {}, weight, eps, out);
  cpu::rms_norm(x.index_select(0, rows), weight, eps, out);
}

void rms_norm_of(const PackedWeight& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out) {
  const bool cuda = on_cuda("rms_norm_of", x.panels());
  check_tensor("rms_norm_of", "rows", rows, {-1}, at::kLong, x.device());
  check_norm("rms_norm_of", weight, out, rows.size(0), x.inputs(), x.device());
  if (out.numel() == 0) return;
  if (cuda) return cuda::rms_norm_of(x, rows, weight, eps, out);
  cpu::rms_norm(x.rows(rows).to(at::kFloat), weight, eps, out);
}

void silu_rms_norm(const at::Tensor& x, const at::Tensor& a, const at::Tensor& weight, double eps,
                   at::Tensor& out) {
  const bool cuda = on_cuda("silu_rms_norm", x);
  check_tensor("silu_rms_norm", "x", x, {-1, -1}, at::kFloat, x.device());
  check_tensor("silu_rms_norm", "a", a, x.sizes(), at::kFloat, x.device());
  check_norm("silu_rms_norm", weight, out, x.size(0), x.size(1), x.device());
  if (x.numel() == 0) return;
  if (cuda) return cuda::rms_norm(x, {}, a, weight, eps, out);
  at::Tensor sum = x.clone();
  add_silu_(sum, a);
  cpu::rms_norm(sum, weight, eps, out);
}

}  // namespace clover::kernels
