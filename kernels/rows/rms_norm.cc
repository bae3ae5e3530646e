#include "kernels/rows/rms_norm.h"

#include <ATen/Functions.h>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/rows.h"
#include "kernels/op/check.h"
#include "kernels/op/run.h"
#include "kernels/rows/activation.h"
#include "kernels/weights/packed_weight.h"

namespace clover::kernels {
namespace {

void check_norm(const char* op, const at::Tensor& weight, const at::Tensor& out, int64_t rows, int64_t width,
                at::Device device) {
  check_tensor(op, "weight", weight, {width}, at::kFloat, device);
  check_tensor(op, "out", out, {rows, width}, std::nullopt, device);
}

NormCall norm_call(const at::Tensor& weight, double eps, at::Tensor& out) {
  return {.x = nullptr,
          .x_rows = nullptr,
          .silu_input = nullptr,
          .weight = weight.const_data_ptr<float>(),
          .eps = static_cast<float>(eps),
          .rows = out.size(0),
          .width = out.size(1),
          .out = out.mutable_data_ptr(),
          .element = element_of(out.scalar_type())};
}

}  // namespace

void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out) {
  const at::Device device = device_of("rms_norm", x);
  check_tensor("rms_norm", "x", x, {-1, -1}, at::kFloat, device);
  check_norm("rms_norm", weight, out, x.size(0), x.size(1), device);
  if (x.numel() == 0) return;
  NormCall call = norm_call(weight, eps, out);
  call.x = x.const_data_ptr<float>();
  run("rms_norm", x, call);
}

void rms_norm_of(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out) {
  const char* const op = "rms_norm_of";
  const bool gpu = on_gpu(op, x);
  check_tensor(op, "x", x, {-1, -1}, at::kFloat, x.device());
  check_tensor(op, "rows", rows, {-1}, at::kLong, x.device());
  check_norm(op, weight, out, rows.size(0), x.size(1), x.device());
  if (out.numel() == 0) return;
  if (!gpu) return rms_norm(x.index_select(0, rows), weight, eps, out);
  NormCall call = norm_call(weight, eps, out);
  call.x = x.const_data_ptr<float>();
  call.x_rows = rows.const_data_ptr<int64_t>();
  run(op, x, call);
}

void rms_norm_of(const PackedWeight& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out) {
  const char* const op = "rms_norm_of";
  const bool gpu = on_gpu(op, x.panels());
  check_tensor(op, "rows", rows, {-1}, at::kLong, x.device());
  check_norm(op, weight, out, rows.size(0), x.inputs(), x.device());
  if (out.numel() == 0) return;
  if (!gpu) return rms_norm(x.rows(rows).to(at::kFloat), weight, eps, out);
  NormCall call = norm_call(weight, eps, out);
  call.panels = x.panels().const_data_ptr();
  call.panel_element = element_of(x.dtype());
  call.x_rows = rows.const_data_ptr<int64_t>();
  run(op, rows, call);
}

void silu_rms_norm(const at::Tensor& x, const at::Tensor& a, const at::Tensor& weight, double eps,
                   at::Tensor& out) {
  const char* const op = "silu_rms_norm";
  const bool gpu = on_gpu(op, x);
  check_tensor(op, "x", x, {-1, -1}, at::kFloat, x.device());
  check_tensor(op, "a", a, x.sizes(), at::kFloat, x.device());
  check_norm(op, weight, out, x.size(0), x.size(1), x.device());
  if (x.numel() == 0) return;
  if (!gpu) {
    at::Tensor sum = x.clone();
    add_silu_(sum, a);
    return rms_norm(sum, weight, eps, out);
  }
  NormCall call = norm_call(weight, eps, out);
  call.x = x.const_data_ptr<float>();
  call.silu_input = a.const_data_ptr<float>();
  run(op, x, call);
}

void run_on_cpu(const NormCall& call) {
  const cpu::NormLoops& loops = cpu::loops<cpu::NormLoops>();
  cpu::for_rows(call.rows, call.width, [&](int64_t begin, int64_t end) {
    loops.rms_norm(call.x, call.weight, call.eps, call.width, call.out, call.element, begin, end);
  });
}

}  // namespace clover::kernels
