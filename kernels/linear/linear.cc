#include "kernels/linear/linear.h"

#include <ATen/ops/empty.h>

#include "kernels/attention/attention.h"
#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/gpu/cuda.h"

namespace clover::kernels {

namespace {

/// Whether the product is made on a GPU.
bool check_product(const char* function, const LinearInput& input, const PackedWeight& weight) {
  TORCH_CHECK(weight.defined(), function, ": the weight is undefined.");
  const bool cuda = on_cuda(function, input.x), normed = input.norm.defined();
  check_tensor(function, "x", input.x, {-1, weight.inputs()}, normed ? at::kFloat : weight.dtype(),
               weight.device());
  if (normed) check_tensor(function, "norm", input.norm, {weight.inputs()}, at::kFloat, weight.device());
  return cuda;
}

}  // namespace

void linear(const LinearInput& input, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate) {
  const bool cuda = check_product("linear", input, weight);
  const at::Device device = weight.device();
  check_tensor("linear", "y", y, {input.x.size(0), weight.outputs()}, at::kFloat, device);
  TORCH_CHECK(!y.is_alias_of(input.x), "linear: y shares memory with x.");
  if (bias.defined()) {
    TORCH_CHECK(!accumulate, "linear: a bias cannot be given when accumulating into y.");
    check_tensor("linear", "bias", bias, {weight.outputs()}, at::kFloat, device);
  }
  if (input.x.size(0) == 0) return;
  (cuda ? cuda::linear : cpu::linear)(input, weight, bias, y, accumulate);
}

at::Tensor linear_arg_max(const LinearInput& input, const PackedWeight& weight) {
  const bool cuda = check_product("linear_arg_max", input, weight);
  return (cuda ? cuda::linear_arg_max : cpu::linear_arg_max)(input, weight);
}

void linear_silu_mul(const LinearInput& input, const PackedWeight& gate_up, at::Tensor& out) {
  const bool cuda = check_product("linear_silu_mul", input, gate_up);
  TORCH_CHECK(gate_up.outputs() % 2 == 0, "linear_silu_mul: gate_up has ", gate_up.outputs(),
              " outputs, expected an even number.");
  check_tensor("linear_silu_mul", "out", out, {input.x.size(0), gate_up.outputs() / 2}, gate_up.dtype(),
               gate_up.device());
  if (input.x.size(0) == 0) return;
  (cuda ? cuda::linear_silu_mul : cpu::linear_silu_mul)(input, gate_up, out);
}

void linear_rope_and_store(const LinearInput& input, const QkvWeight& qkv, const at::Tensor& cos,
                           const at::Tensor& sin, const at::Tensor& slots, at::Tensor& q, at::Tensor& k,
                           at::Tensor& v) {
  const char* function = "linear_rope_and_store";
  const bool cuda = check_product(function, input, qkv.matrix);
  const at::Device device = qkv.matrix.device();
  check_cache(function, k, v, device);
  const int64_t rows = input.x.size(0), size = k.size(3);
  check_tensor(function, "q", q, {rows, -1, size}, at::kFloat, device);
  const int64_t outputs = qkv.matrix.outputs();
  TORCH_CHECK(outputs == (q.size(1) + 2 * k.size(1)) * size, function, ": qkv has ", outputs,
              " outputs, expected those of ", q.size(1), " query and twice ", k.size(1),
              " key heads of size ", size, ".");
  if (qkv.bias.defined()) check_tensor(function, "bias", qkv.bias, {outputs}, at::kFloat, device);
  TORCH_CHECK(qkv.query_norm.defined() == qkv.key_norm.defined(), function,
              ": expected norms of both queries and keys, or of none.");
  if (qkv.query_norm.defined()) {
    check_tensor(function, "query_norm", qkv.query_norm, {size}, at::kFloat, device);
    check_tensor(function, "key_norm", qkv.key_norm, {size}, at::kFloat, device);
  }
  check_tensor(function, "cos", cos, {rows, size / 2}, at::kFloat, device);
  check_tensor(function, "sin", sin, {rows, size / 2}, at::kFloat, device);
  check_tensor(function, "slots", slots, {rows}, at::kLong, device);
  if (rows == 0) return;
  (cuda ? cuda::linear_rope_and_store : cpu::linear_rope_and_store)(input, qkv, cos, sin, slots, q, k, v);
}

}  // namespace clover::kernels
