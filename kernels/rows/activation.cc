#include "kernels/rows/activation.h"

#include <ATen/Functions.h>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/rows.h"
#include "kernels/op/check.h"
#include "kernels/op/run.h"

namespace clover::kernels {

float exp_f32(float x) {
  return cpu::loops<cpu::ActivationLoops>().exp(x);
}

void add_silu_(at::Tensor& z, const at::Tensor& a) {
  const at::Device device = device_of("add_silu_", z);
  check_tensor("add_silu_", "z", z, {-1, -1}, at::kFloat, device);
  check_tensor("add_silu_", "a", a, z.sizes(), at::kFloat, device);
  if (z.numel() == 0) return;
  run("add_silu_", z,
      AddSiluCall{.z = z.mutable_data_ptr<float>(), .a = a.const_data_ptr<float>(), .count = z.numel()});
}

void run_on_cpu(const AddSiluCall& call) {
  const cpu::ActivationLoops& loops = cpu::loops<cpu::ActivationLoops>();
  // An element with its exponential costs as much as about 4 of a simple loop.
  cpu::for_rows(call.count, 4,
                [&](int64_t begin, int64_t end) { loops.add_silu(call.z, call.a, begin, end); });
}

namespace {

void check_gated(const at::Tensor& s, const at::Tensor& s_rows, const at::Tensor& q, const KeyValues& kv,
                 int64_t groups, const at::Tensor& out, const at::Tensor& rounded) {
  const char* const op = "add_gated";
  const at::Device device = device_of(op, s);
  check_tensor(op, "s", s, {-1, -1}, at::kFloat, device);
  if (s_rows.defined()) check_tensor(op, "s_rows", s_rows, {-1}, at::kLong, device);
  const int64_t count = (s_rows.defined() ? s_rows : s).size(0), width = s.size(1);
  check_tensor(op, "q", q, {count, width}, at::kFloat, device);
  if (kv.rows.defined()) {
    check_tensor(op, "kv.rows", kv.rows, {count}, at::kLong, device);
    check_tensor(op, "kv", kv.data, {-1, 2 * width}, rounded.scalar_type(), device);
  } else {
    check_tensor(op, "kv", kv.data, {count, 2 * width}, at::kFloat, device);
  }
  check_tensor(op, "out", out, {count, width}, at::kFloat, device);
  check_tensor(op, "rounded", rounded, {count, width}, std::nullopt, device);
  TORCH_CHECK(groups >= 1 && width % groups == 0, op, ": ", groups, " groups do not divide the width ", width,
              ".");
}

const int64_t* indices_of(const at::Tensor& rows) {
  return rows.defined() ? rows.const_data_ptr<int64_t>() : nullptr;
}

}  // namespace

void add_gated(const at::Tensor& s, const at::Tensor& s_rows, const at::Tensor& q, const KeyValues& kv,
               int64_t groups, double eps, GateActivation activation, at::Tensor& out, at::Tensor& rounded) {
  check_gated(s, s_rows, q, kv, groups, out, rounded);
  if (out.numel() == 0) return;
  GatedCall call{.s = s.const_data_ptr<float>(),
                 .s_rows = indices_of(s_rows),
                 .q = q.const_data_ptr<float>(),
                 .kv = kv.data.const_data_ptr(),
                 .kv_rows = indices_of(kv.rows),
                 .rows = out.size(0),
                 .width = out.size(1),
                 .groups = groups,
                 .eps = static_cast<float>(eps),
                 .silu = activation == GateActivation::silu,
                 .out = out.mutable_data_ptr<float>(),
                 .rounded = rounded.mutable_data_ptr(),
                 .element = element_of(rounded.scalar_type())};
  if (on_gpu("add_gated", s)) return run_on_gpu(call, GpuContext("add_gated", s));
  // On the CPU ATen gathers the rows (out begins as s, to which run_on_cpu adds) and rounds the result.
  s_rows.defined() ? at::index_select_out(out, s.detach(), 0, s_rows) : out.copy_(s);
  const at::Tensor gathered_kv =
      kv.rows.defined() ? kv.data.index_select(0, kv.rows).to(at::kFloat) : kv.data;
  call.kv = gathered_kv.const_data_ptr();
  run_on_cpu(call);
  rounded.copy_(out);
}

void run_on_cpu(const GatedCall& call) {
  const cpu::ActivationLoops& loops = cpu::loops<cpu::ActivationLoops>();
  const int64_t width = call.width;
  // A row costs as much as about 6 * width elements of a simple loop.
  cpu::for_rows(call.rows, 6 * width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* key = static_cast<const float*>(call.kv) + 2 * row * width;
      loops.add_gated(call.out + row * width, call.q + row * width, key, key + width, width, call.groups,
                      call.eps, call.silu);
    }
  });
}

}  // namespace clover::kernels
