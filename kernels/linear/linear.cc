#include "kernels/linear/linear.h"

#include <ATen/ops/empty.h>

#include "kernels/attention/attention.h"
#include "kernels/linear/call_of.h"
#include "kernels/op/check.h"
#include "kernels/op/run.h"

namespace clover::kernels {

namespace {

void check_product(const char* op, const LinearInput& input, const PackedWeight& weight) {
  TORCH_CHECK(weight.defined(), op, ": the weight is undefined.");
  device_of(op, input.x);
  const bool normed = input.norm.defined();
  check_tensor(op, "x", input.x, {-1, weight.inputs()}, normed ? at::kFloat : weight.dtype(),
               weight.device());
  if (normed) check_tensor(op, "norm", input.norm, {weight.inputs()}, at::kFloat, weight.device());
}

}  // namespace

void linear(const LinearInput& input, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate) {
  check_product("linear", input, weight);
  const at::Device device = weight.device();
  check_tensor("linear", "y", y, {input.x.size(0), weight.outputs()}, at::kFloat, device);
  TORCH_CHECK(!y.is_alias_of(input.x), "linear: y shares memory with x.");
  if (bias.defined()) {
    TORCH_CHECK(!accumulate, "linear: a bias cannot be given when accumulating into y.");
    check_tensor("linear", "bias", bias, {weight.outputs()}, at::kFloat, device);
  }
  if (input.x.size(0) == 0) return;
  run("linear", input.x, call_of(input, weight, bias, y, accumulate));
}

at::Tensor linear_arg_max(const LinearInput& input, const PackedWeight& weight) {
  check_product("linear_arg_max", input, weight);
  at::Tensor indices = at::empty({input.x.size(0)}, input.x.options().dtype(at::kLong));
  if (input.x.size(0) > 0) run("linear_arg_max", input.x, arg_max_call_of(input, weight, indices));
  return indices;
}

void linear_silu_mul(const LinearInput& input, const PackedWeight& gate_up, at::Tensor& out) {
  check_product("linear_silu_mul", input, gate_up);
  TORCH_CHECK(gate_up.outputs() % 2 == 0, "linear_silu_mul: gate_up has ", gate_up.outputs(),
              " outputs, expected an even number.");
  check_tensor("linear_silu_mul", "out", out, {input.x.size(0), gate_up.outputs() / 2}, gate_up.dtype(),
               gate_up.device());
  if (input.x.size(0) == 0) return;
  run("linear_silu_mul", input.x, call_of(input, gate_up, out));
}

void linear_rope_and_store(const LinearInput& input, const QkvWeight& qkv, const at::Tensor& cos,
                           const at::Tensor& sin, const at::Tensor& slots, at::Tensor& q, at::Tensor& k,
                           at::Tensor& v) {
  const char* const op = "linear_rope_and_store";
  check_product(op, input, qkv.matrix);
  const at::Device device = qkv.matrix.device();
  check_cache(op, k, v, device);
  const int64_t rows = input.x.size(0), size = k.size(3);
  check_tensor(op, "q", q, {rows, -1, size}, at::kFloat, device);
  const int64_t outputs = qkv.matrix.outputs();
  TORCH_CHECK(outputs == (q.size(1) + 2 * k.size(1)) * size, op, ": qkv has ", outputs,
              " outputs, expected those of ", q.size(1), " query and twice ", k.size(1),
              " key heads of size ", size, ".");
  if (qkv.bias.defined()) check_tensor(op, "bias", qkv.bias, {outputs}, at::kFloat, device);
  TORCH_CHECK(qkv.query_norm.defined() == qkv.key_norm.defined(), op,
              ": expected norms of both queries and keys, or of none.");
  if (qkv.query_norm.defined()) {
    check_tensor(op, "query_norm", qkv.query_norm, {size}, at::kFloat, device);
    check_tensor(op, "key_norm", qkv.key_norm, {size}, at::kFloat, device);
  }
  check_tensor(op, "cos", cos, {rows, size / 2}, at::kFloat, device);
  check_tensor(op, "sin", sin, {rows, size / 2}, at::kFloat, device);
  check_tensor(op, "slots", slots, {rows}, at::kLong, device);
  if (rows == 0) return;
  run(op, input.x, call_of(input, qkv, cos, sin, slots, q, k, v));
}

}  // namespace clover::kernels
